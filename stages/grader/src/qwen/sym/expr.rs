//! Expressions as a flat list of nodes, children before parents: what sympy's parsers would build,
//! reduced to what numeric evaluation needs.

/// Index of a node in its [`Arena`].
pub type Id = u32;

/// Functions that can be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fun {
    Exp,
    Ln,
    Sin,
    Cos,
    Tan,
    Csc,
    Sec,
    Cot,
    Asin,
    Acos,
    Atan,
    Acsc,
    Asec,
    Acot,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Abs,
    Conjugate,
    Floor,
    Ceiling,
    Factorial,
}

/// One node; operands are earlier nodes.
#[derive(Clone, Copy, Debug)]
pub enum Node {
    /// An exact integer or rational, as a float.
    Num(f64),
    /// A number written with a decimal point.
    Float(f64),
    /// sympy's `oo`.
    Infinity,
    /// A constant that only some parsers know: π, e, i.
    Const(Const),
    /// A symbol, by the hash of its name.
    Sym(u64),
    Add(Id, Id),
    Mul(Id, Id),
    Pow(Id, Id),
    Neg(Id),
    Fun(Fun, Id),
    /// Logarithm of the first to the base of the second.
    Log(Id, Id),
    Binomial(Id, Id),
    /// An unknown function (by the hash of its name) of the arguments `args[start..end]`.
    Apply(u64, u32, u32),
}

/// Named constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Const {
    Pi,
    E,
    I,
}

/// Nodes of one expression.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    /// Children before parents.
    pub nodes: Vec<Node>,
    /// Arguments of [`Node::Apply`].
    pub args: Vec<Id>,
}

impl Arena {
    /// An arena for expressions written with so many bytes.
    pub fn with_room_for(bytes: usize) -> Self {
        Arena { nodes: Vec::with_capacity(bytes + 8), args: Vec::new() }
    }

    /// Adds a node.
    pub fn push(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        (self.nodes.len() - 1) as Id
    }

    /// Adds an unknown function of some arguments.
    pub fn apply(&mut self, name: u64, args: &[Id]) -> Id {
        let start = self.args.len() as u32;
        self.args.extend_from_slice(args);
        self.push(Node::Apply(name, start, self.args.len() as u32))
    }

    /// Whether a symbol stands below `id`, in a subtree whose first node is `from`.
    pub fn has_symbols(&self, from: Id, id: Id) -> bool {
        self.nodes[from as usize..=id as usize].iter().any(|n| matches!(n, Node::Sym(_)))
    }
}

/// Hash of a name: symbols with the same name get the same value.
pub fn name_hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Continues a name hash.
pub fn extend_hash(hash: u64, more: &[u8]) -> u64 {
    more.iter().fold(hash, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Comparison signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// What a parser makes of a string.
#[derive(Clone, Debug)]
pub enum Object {
    /// An expression.
    Expr(Id),
    /// A relation that stays open.
    Rel(Op, Id, Id),
    /// A relation that sympy decides at once.
    Bool(bool),
    /// A chain of relations, by the hash of its text: it only equals itself.
    Chain(u64),
    /// Python's tuple, list and set.
    Tuple(Vec<Object>),
    List(Vec<Object>),
    Set(Vec<Object>),
    /// A matrix by rows; `plain` when it is written out rather than computed.
    Matrix {
        cols: usize,
        plain: bool,
        entries: Vec<Id>,
    },
    /// A Python string, or a text that no parser reads.
    Text(String),
}
