//! Expands families into stages: fills in variables, types params, looks references up.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rayon::prelude::*;
use serde_json::Value as Json;

use crate::graph;
use crate::plan::{PlannedStage, Source};

use super::document::Document;
use super::family::{Families, Family, misfit_of};
use super::kinds::Kinds;
use super::node::{Table, locate, parse_path};
use super::problem::{Problem, Problems};
use super::publish::{Published, check_collisions};
use super::resolve::{Resolver, World};
use super::settings::{self, STRUCTURE, is_setting};
use super::source::Span;
use super::suggest::remedy;
use super::vars::Scope;

/// An expanded stage; its [`Source::Stage`]s still count instances in the order of the manifest.
struct Built {
    stage: PlannedStage,
    /// Instances used, with the place that says so.
    uses: Vec<(usize, Span)>,
    publish_span: Span,
}

/// Everything needed to build an instance.
pub(crate) struct Builder<'a> {
    pub document: &'a Document<'a>,
    pub families: &'a Families<'a>,
    pub kinds: &'a Kinds,
    pub folders: &'a [std::path::PathBuf],
}

impl Builder<'_> {
    /// All stages in topological order. What is wrong is reported; the list is then incomplete.
    pub fn build(&self, problems: &mut Problems) -> Vec<PlannedStage> {
        let world = World {
            families: self.families,
            folders: self.folders,
            exists: Mutex::default(),
        };
        let results: Vec<(Option<Built>, Problems)> = (0..self.families.count)
            .into_par_iter()
            .with_min_len(64)
            .map(|number| {
                let after = self.families.list.partition_point(|family| family.first <= number);
                let family = &self.families.list[after - 1];
                let mut problems = Problems::default();
                let built = self.instance(&world, family, number - family.first, &mut problems);
                (built, problems)
            })
            .collect();
        let mut built = Vec::with_capacity(results.len());
        for (instance, found) in results {
            problems.append(found);
            built.push(instance);
        }
        self.check_outputs(&built, problems);
        self.check_publish(&built, problems);
        let order = self.order(&built, problems);
        if !problems.is_empty() {
            return Vec::new();
        }
        in_order(built, &order)
    }

    fn instance(
        &self,
        world: &World<'_>,
        family: &Family<'_>,
        number: usize,
        problems: &mut Problems,
    ) -> Option<Built> {
        let coordinates = family.grid.coordinates(number);
        let axes = family.grid.axes.iter().zip(&coordinates);
        let locals: Vec<(&str, &Json)> = axes
            .map(|(axis, at)| (axis.name.as_str(), &axis.values[*at]))
            .collect();
        let arm = family.grid.axis("arm").map(|at| family.grid.axes[at].texts[coordinates[at]].as_str());
        let template: Cow<'_, Table> = family.template(arm);
        let scope = Scope {
            globals: &self.document.globals,
            locals: &locals,
        };
        let name = family.grid.name(family.name, &coordinates);
        let report = |problem: Problem, problems: &mut Problems| {
            problems.push(match family.grid.axes.is_empty() {
                true => problem,
                false => problem.in_instance(&name),
            });
        };

        let not_here = |key: &str| !is_setting(key) || STRUCTURE.contains(&key);
        let settings = scope.resolve_table(&template, not_here, problems);
        let params = scope.resolve_table(&template, is_setting, problems);
        let settings = settings
            .map(settings::parse)
            .map(|settings| settings.and_then(settings::Settings::check));
        let settings = match settings {
            Some(Ok(settings)) => Some(settings),
            Some(Err(found)) => {
                for misfit in found {
                    report(family.problem(misfit, &template), problems);
                }
                None
            }
            None => None,
        };

        let kind = family.kind?;
        let value = Json::Object(params?);
        let params = value.as_object()?;
        let mut stage = match self.kinds.parse(kind, params, &value) {
            Ok(stage) => stage,
            Err(found) => {
                for misfit in found {
                    report(family.problem(misfit, &template), problems);
                }
                return None;
            }
        };
        for problem in stage.check() {
            report(family.problem(misfit_of(problem, "bad-param"), &template), problems);
        }
        let mut params = stage.params();
        let mut resolver = Resolver::new(world, family, &coordinates, &template, problems);
        resolver.rewrite(&mut params);
        let (inputs, uses) = (resolver.inputs, resolver.uses);
        if resolver.changed {
            match (self.kinds.entry(kind).parse)(&params) {
                Ok(rewritten) => stage = rewritten,
                // A fan-in without instances, for example, has been reported already.
                Err(problem) if problems.is_empty() => {
                    report(family.problem(misfit_of(problem, "bad-param"), &template), problems);
                }
                Err(_) => {}
            }
        }
        let settings = settings?;
        let mut depends_on: Vec<usize> = uses.iter().map(|(number, _)| *number).collect();
        depends_on.sort_unstable();
        depends_on.dedup();
        let publish_span = locate(&template, &parse_path("publish")).map_or(family.key, |(_, value, _)| value);
        Some(Built {
            stage: PlannedStage {
                base: family.name.to_owned(),
                arm: arm.map(str::to_owned),
                kind: self.kinds.entry(kind),
                params,
                inputs,
                depends_on,
                timeout: settings.timeout,
                retries: settings.retries,
                resources: settings.resources(stage.default_gpus()),
                cache: settings.cache,
                publish: settings.publish,
                stage: Arc::from(stage),
                name,
            },
            uses,
            publish_span,
        })
    }

    /// A reference to a file in an artifact must lead to a declared output, or into or above one.
    fn check_outputs(&self, built: &[Option<Built>], problems: &mut Problems) {
        let mut outputs: HashMap<usize, Vec<String>> = HashMap::new();
        for user in built.iter().flatten() {
            for (text, source) in &user.stage.inputs {
                let Source::Stage { index, path } = source else { continue };
                let Some(target) = built[*index].as_ref().filter(|_| !path.is_empty()) else {
                    continue;
                };
                let declared = outputs.entry(*index).or_insert_with(|| target.stage.stage.outputs());
                let inside = |inner: &str, outer: &str| {
                    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                let fits = |output: &String| inside(path, output) || inside(output, path);
                if declared.is_empty() || declared.iter().any(fits) {
                    continue;
                }
                let place = user.uses.iter().find(|(number, _)| number == index);
                let known = declared.iter().map(String::as_str);
                problems.push(
                    Problem::new(
                        "unknown-output",
                        format!("`{text}`: a `{}` stage puts out no `{path}`", target.stage.kind.name),
                        remedy(path, "its outputs", known),
                    )
                    .at(place.map_or(Span { file: 0, start: 0, end: 0 }, |(_, span)| *span), "no such output"),
                );
            }
        }
    }

    fn check_publish(&self, built: &[Option<Built>], problems: &mut Problems) {
        let published = built.iter().flatten().filter_map(|built| {
            Some(Published {
                stage: &built.stage.name,
                family: self.families.by_name[built.stage.base.as_str()],
                path: built.stage.publish.as_deref()?,
                span: built.publish_span,
            })
        });
        check_collisions(published.collect(), problems);
    }

    fn order(&self, built: &[Option<Built>], problems: &mut Problems) -> Vec<usize> {
        let needs = |built: &Option<Built>| {
            let stage = built.as_ref().map(|built| &built.stage);
            stage.map_or_else(Vec::new, |stage| stage.depends_on.clone())
        };
        let depends_on: Vec<Vec<usize>> = built.iter().map(needs).collect();
        let cycles = match graph::order(&depends_on) {
            Ok(order) => return order,
            Err(cycles) => cycles,
        };
        for cycle in cycles {
            let stage = |number: usize| built[number].as_ref().map(|built| &built.stage);
            let spelled = |name: fn(&PlannedStage) -> &str| {
                let names = cycle.iter().filter_map(|number| stage(*number));
                names.map(name).collect::<Vec<_>>().join(" → ")
            };
            let (names, bases) = (spelled(|stage| &stage.name), spelled(|stage| &stage.base));
            let mut problem = Problem::new(
                "cycle",
                format!("stages wait for each other: {bases}"),
                "remove one of these references",
            );
            if names != bases {
                problem = problem.in_instance(&names);
            }
            for pair in cycle.windows(2) {
                let uses = built[pair[0]].iter().flat_map(|built| &built.uses);
                let place = uses.into_iter().find(|(number, _)| *number == pair[1]);
                if let (Some((_, span)), Some(from), Some(to)) = (place, stage(pair[0]), stage(pair[1])) {
                    problem = problem.at(*span, format!("`{}` needs `{}`", from.base, to.base));
                }
            }
            problems.push(problem);
        }
        Vec::new()
    }
}

/// Moves stages into `order` and renumbers what they refer to.
fn in_order(mut built: Vec<Option<Built>>, order: &[usize]) -> Vec<PlannedStage> {
    let mut place = vec![0; order.len()];
    for (new, old) in order.iter().enumerate() {
        place[*old] = new;
    }
    let taken = order.iter().filter_map(|old| built[*old].take());
    taken
        .map(|built| {
            let mut stage = built.stage;
            for need in &mut stage.depends_on {
                *need = place[*need];
            }
            stage.depends_on.sort_unstable();
            for source in stage.inputs.values_mut() {
                if let Source::Stage { index, .. } = source {
                    *index = place[*index];
                }
            }
            stage
        })
        .collect()
}
