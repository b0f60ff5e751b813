//! The table of problem families: wordings, ranges of numbers, and the steps to the answer.
//!
//! Placeholders in wordings: `{0}` … the numbers, `{A}` `{B}` `{C}` different first names,
//! `{obj}` a plural noun. First names are unlike the words that open solutions.

/// First names.
pub const NAMES: [&str; 16] = [
    "Amy", "Ben", "Cara", "Dan", "Eva", "Finn", "Gus", "Ida", "Jon", "Kim", "Leo", "Mia", "Ned", "Pam",
    "Ray", "Sue",
];

/// Things that are counted.
pub const OBJECTS: &[&str] =
    &["apples", "pens", "coins", "cards", "books", "shells", "eggs", "stamps", "cups", "beads"];

/// A number of the problem (`N`), the result of an earlier step (`S`), or a constant (`K`).
#[derive(Clone, Copy)]
pub enum Operand {
    /// The number at this place.
    N(usize),
    /// The result of this step.
    S(usize),
    /// A fixed number.
    K(i64),
}

/// One step: left operand, `+ - * /`, right operand. Divisions are exact, results positive.
pub type Step = (Operand, char, Operand);

/// Where a number is drawn from.
#[derive(Clone, Copy)]
pub enum Range {
    /// 2 to the `largest` param.
    Small,
    /// From the first to the second, both included.
    Of(i64, i64),
}

/// Problems that differ in wording, names, objects and numbers only.
pub struct Family {
    /// Unique name.
    pub name: &'static str,
    /// Difficulty, 1 to 5.
    pub level: u8,
    /// What the problem is about, for tables by subject.
    pub subject: &'static str,
    /// Texts with placeholders.
    pub wordings: &'static [&'static str],
    /// One range for each number.
    pub numbers: &'static [Range],
    /// The way to the answer, which is the last result.
    pub steps: &'static [Step],
}

use Operand::{K, N, S};
use Range::{Of, Small};

/// Every family.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "gain",
        level: 1,
        subject: "counting",
        wordings: &[
            "{A} has {0} {obj}. {A} finds {1} more {obj}. How many {obj} does {A} have now?",
            "{A} has {0} {obj} and buys {1} more. How many {obj} does {A} have now?",
            "There are {0} {obj} in a box. {A} puts {1} more in. How many {obj} are in the box now?",
        ],
        numbers: &[Small, Small],
        steps: &[(N(0), '+', N(1))],
    },
    Family {
        name: "loss",
        level: 1,
        subject: "counting",
        wordings: &[
            "{A} has {0} {obj}. {A} gives {1} of them to {B}. How many {obj} does {A} have left?",
            "{A} has {0} {obj} and loses {1}. How many {obj} does {A} have left?",
            "There are {0} {obj} in a box. {A} takes {1} out. How many {obj} are in the box now?",
        ],
        numbers: &[Small, Small],
        steps: &[(N(0), '-', N(1))],
    },
    Family {
        name: "together",
        level: 1,
        subject: "comparison",
        wordings: &[
            "{A} has {0} {obj}. {B} has {1} {obj}. How many {obj} do they have together?",
            "{A} has {0} {obj} and {B} has {1}. How many {obj} do they have together?",
        ],
        numbers: &[Small, Small],
        steps: &[(N(0), '+', N(1))],
    },
    Family {
        name: "difference",
        level: 1,
        subject: "comparison",
        wordings: &[
            "{A} has {0} {obj}. {B} has {1} {obj}. How many more {obj} does {A} have than {B}?",
            "{A} has {0} {obj} and {B} has {1}. How many more {obj} does {A} have than {B}?",
        ],
        numbers: &[Small, Small],
        steps: &[(N(0), '-', N(1))],
    },
    Family {
        name: "gain-gain",
        level: 2,
        subject: "counting",
        wordings: &[
            "{A} has {0} {obj}. {A} finds {1} more and buys {2} more. How many {obj} does {A} have now?",
            "{A} has {0} {obj}. {B} gives {A} {1} {obj} and then {2} more. How many {obj} does {A} have now?",
        ],
        numbers: &[Small, Small, Small],
        steps: &[(N(0), '+', N(1)), (S(0), '+', N(2))],
    },
    Family {
        name: "gain-loss",
        level: 2,
        subject: "counting",
        wordings: &[
            "{A} has {0} {obj}. {A} buys {1} more and gives {2} to {B}. How many {obj} does {A} have now?",
            "There are {0} {obj} in a box. {A} puts {1} more in and {B} takes {2} out. How many {obj} are in the box now?",
        ],
        numbers: &[Small, Small, Small],
        steps: &[(N(0), '+', N(1)), (S(0), '-', N(2))],
    },
    Family {
        name: "loss-gain",
        level: 2,
        subject: "counting",
        wordings: &[
            "{A} has {0} {obj}. {A} loses {1} and then finds {2} more. How many {obj} does {A} have now?",
            "There are {0} {obj} in a box. {A} takes {1} out and {B} puts {2} more in. How many {obj} are in the box now?",
        ],
        numbers: &[Small, Small, Small],
        steps: &[(N(0), '-', N(1)), (S(0), '+', N(2))],
    },
    Family {
        name: "more-than",
        level: 2,
        subject: "comparison",
        wordings: &[
            "{A} has {0} {obj}. {B} has {1} more {obj} than {A}. How many {obj} do they have together?",
        ],
        numbers: &[Small, Small],
        steps: &[(N(0), '+', N(1)), (N(0), '+', S(0))],
    },
    Family {
        name: "fewer-than",
        level: 2,
        subject: "comparison",
        wordings: &[
            "{A} has {0} {obj}. {B} has {1} fewer {obj} than {A}. How many {obj} do they have together?",
        ],
        numbers: &[Small, Small],
        steps: &[(N(0), '-', N(1)), (N(0), '+', S(0))],
    },
    Family {
        name: "boxes-gain",
        level: 3,
        subject: "groups",
        wordings: &[
            "{A} has {0} boxes with {1} {obj} in each, and {2} more {obj}. How many {obj} does {A} have?",
            "{A} fills {0} bags with {1} {obj} each and has {2} {obj} left over. How many {obj} does {A} have?",
        ],
        numbers: &[Of(2, 9), Of(2, 9), Of(2, 20)],
        steps: &[(N(0), '*', N(1)), (S(0), '+', N(2))],
    },
    Family {
        name: "boxes-loss",
        level: 3,
        subject: "groups",
        wordings: &[
            "{A} has {0} boxes with {1} {obj} in each and gives {2} {obj} to {B}. How many {obj} does {A} have left?",
        ],
        numbers: &[Of(2, 9), Of(2, 9), Of(2, 20)],
        steps: &[(N(0), '*', N(1)), (S(0), '-', N(2))],
    },
    Family {
        name: "change",
        level: 3,
        subject: "money",
        wordings: &[
            "{A} buys {0} {obj} for {1} dollars each and pays with {2} dollars. How many dollars does {A} get back?",
        ],
        numbers: &[Of(2, 9), Of(2, 9), Of(10, 99)],
        steps: &[(N(0), '*', N(1)), (N(2), '-', S(0))],
    },
    Family {
        name: "times-as-many",
        level: 3,
        subject: "comparison",
        wordings: &[
            "{A} has {0} {obj}. {B} has {1} times as many {obj} as {A}. How many {obj} do they have together?",
        ],
        numbers: &[Of(2, 20), Of(2, 6)],
        steps: &[(N(0), '*', N(1)), (N(0), '+', S(0))],
    },
    Family {
        name: "three-people",
        level: 4,
        subject: "comparison",
        wordings: &[
            "{A} has {0} {obj}. {B} has {1} more {obj} than {A}. {C} has {2} times as many {obj} as {B}. How many {obj} do {B} and {C} have together?",
        ],
        numbers: &[Of(2, 20), Of(2, 12), Of(2, 5)],
        steps: &[(N(0), '+', N(1)), (S(0), '*', N(2)), (S(0), '+', S(1))],
    },
    Family {
        name: "two-kinds-of-boxes",
        level: 4,
        subject: "groups",
        wordings: &[
            "{A} has {0} boxes with {1} {obj} in each and {2} bags with {3} {obj} in each. How many {obj} does {A} have?",
        ],
        numbers: &[Of(2, 9), Of(2, 12), Of(2, 9), Of(2, 12)],
        steps: &[(N(0), '*', N(1)), (N(2), '*', N(3)), (S(0), '+', S(1))],
    },
    Family {
        name: "share-the-rest",
        level: 4,
        subject: "sharing",
        wordings: &[
            "{A} has {0} bags with {1} {obj} in each. {A} keeps {2} {obj} and shares the rest equally among {3} friends. How many {obj} does each friend get?",
        ],
        numbers: &[Of(2, 9), Of(3, 12), Of(2, 12), Of(2, 6)],
        steps: &[(N(0), '*', N(1)), (S(0), '-', N(2)), (S(1), '/', N(3))],
    },
    Family {
        name: "pick-and-share",
        level: 5,
        subject: "sharing",
        wordings: &[
            "{A} makes {0} {obj} a day for {1} days. {B} makes {2} {obj} a day for {3} days. They sell {4} {obj} and share the rest equally between the two of them. How many {obj} does each get?",
        ],
        numbers: &[Of(5, 30), Of(2, 9), Of(5, 30), Of(2, 9), Of(5, 60)],
        steps: &[
            (N(0), '*', N(1)),
            (N(2), '*', N(3)),
            (S(0), '+', S(1)),
            (S(2), '-', N(4)),
            (S(3), '/', K(2)),
        ],
    },
    Family {
        name: "pack-and-sell",
        level: 5,
        subject: "money",
        wordings: &[
            "A farm fills {0} crates with {1} {obj} each. {2} {obj} break. The rest go into bags of {3}. Each bag sells for {4} dollars. How many dollars does the farm earn?",
        ],
        numbers: &[Of(5, 30), Of(6, 24), Of(5, 60), Of(2, 9), Of(2, 15)],
        steps: &[(N(0), '*', N(1)), (S(0), '-', N(2)), (S(1), '/', N(3)), (S(2), '*', N(4))],
    },
    Family {
        name: "wages",
        level: 5,
        subject: "money",
        wordings: &[
            "{A} earns {0} dollars an hour and works {1} hours a day for {2} days. {A} spends {3} dollars and had {4} dollars before. How many dollars does {A} have now?",
        ],
        numbers: &[Of(8, 30), Of(2, 9), Of(2, 9), Of(20, 200), Of(20, 200)],
        steps: &[(N(0), '*', N(1)), (S(0), '*', N(2)), (S(1), '-', N(3)), (S(2), '+', N(4))],
    },
];
