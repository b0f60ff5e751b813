//! Relations as sympy builds them: decided at once where both sides are numbers.

use super::eval::{Evaluator, Value};
use super::expr::{Arena, Id, Node, Object, Op};

/// A relation between two expressions.
pub fn build(arena: &mut Arena, op: Op, left: Id, right: Id) -> Object {
    let minus = arena.push(Node::Neg(right));
    let difference = arena.push(Node::Add(left, minus));
    let mut eval = Evaluator::new(arena);
    let constant = match eval.at(0, difference) {
        Value::Number { z, err } => {
            let zero = z.norm() <= 32.0 * err;
            if !eval.symbolic(difference) {
                Some((zero, z))
            } else {
                // x + 1 = x is decided too: the difference is a number.
                match eval.at(1, difference) {
                    Value::Number { z: w, err: e } if (z - w).norm() <= 32.0 * (err + e) => Some((zero, z)),
                    _ => None,
                }
            }
        }
        Value::Undefined => None,
    };
    let Some((zero, z)) = constant else {
        return Object::Rel(op, left, right);
    };
    match op {
        Op::Eq => Object::Bool(zero),
        Op::Ne => Object::Bool(!zero),
        Op::Lt => Object::Bool(!zero && z.re < 0.0),
        Op::Le => Object::Bool(zero || z.re < 0.0),
        Op::Gt => Object::Bool(!zero && z.re > 0.0),
        Op::Ge => Object::Bool(zero || z.re > 0.0),
    }
}

/// A relation whose left side is a relation: an equation of a truth value and a number is false,
/// an inequality raises an exception.
pub fn chain(arena: &Arena, left: Object, op: Op, right: Id) -> Option<Object> {
    let symbol = matches!(arena.nodes[right as usize], Node::Sym(_));
    match (op, left) {
        (Op::Eq, Object::Rel(..) | Object::Chain(_) | Object::Bool(_)) if symbol => Some(Object::Chain(0)),
        (Op::Eq, _) => Some(Object::Bool(false)),
        (Op::Ne, _) => Some(Object::Bool(true)),
        _ => None,
    }
}
