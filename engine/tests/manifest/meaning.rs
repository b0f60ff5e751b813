//! What right manifests mean.

use serde_json::json;

use crate::toys::{names, plan};

const FIVE_ARMS: &str = r#"
name = "five"
title = "Five arms"
seed = 17

[vars]
model = "@base"

[arm.base]
label = "Base"
[arm.base.eval]
model = "@base"
[arm.steering]
label = "Steering vectors"
[arm.lora]
[arm.lora.train]
lr = 2e-4

[matrix]
seed = [1, 2]

[defaults.data]
count = 7

[stage.table]
kind = "table"
samples = "@eval[*]"
claims = "${claims}"
publish = "table"

[stage.base]
kind = "note"

[stage.data]
kind = "data"
seed = "${seed}"

[stage.train]
kind = "train"
foreach = ["arm", "seed"]
arms = ["steering", "lora"]
model = "${model}"
data = "@data/train.jsonl"
seed = "${seed}"
timeout = "2h 30m"
retries = 2
resources = { memory = "8GB", cpus = 2 }

[stage.eval]
kind = "train"
foreach = ["arm", "seed"]
model = "@train"

[claims]
base = 0.5
"#;

#[test]
fn five_arms_expand_in_order() {
    let plan = plan(FIVE_ARMS);
    assert_eq!(
        names(&plan),
        [
            "base",
            "data",
            "train[steering,seed=1]",
            "train[steering,seed=2]",
            "train[lora,seed=1]",
            "train[lora,seed=2]",
            "eval[base,seed=1]",
            "eval[base,seed=2]",
            "eval[steering,seed=1]",
            "eval[steering,seed=2]",
            "eval[lora,seed=1]",
            "eval[lora,seed=2]",
            "table",
        ]
    );
    let stage = |name: &str| plan.stages.iter().find(|stage| stage.name == name).unwrap();
    assert_eq!(stage("data").params, json!({"count": 7, "seed": 17}));
    let train = stage("train[lora,seed=2]");
    assert_eq!(train.params["lr"], json!(2e-4));
    assert_eq!(train.params["seed"], json!(2));
    assert_eq!(train.params["model"], json!({"$input": "@base"}));
    assert_eq!(train.timeout.unwrap().as_secs(), 9000);
    assert_eq!(train.resources.memory, 8_000_000_000);
    assert_eq!(train.resources.gpus, 1);
    let table = stage("table");
    assert_eq!(table.depends_on, [6, 7, 8, 9, 10, 11]);
    assert_eq!(table.params["samples"]["lora,seed=2"], json!({"$input": "@eval[lora,seed=2]"}));
    assert_eq!(table.params["claims"], json!({"base": 0.5}));
    assert_eq!(table.publish.as_deref(), Some("table"));
    assert_eq!(stage("eval[base,seed=2]").params["model"], json!({"$input": "@base"}));
}
