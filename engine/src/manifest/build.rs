//! Expands families into stages: fills in variables, types params, looks references up.

use std::collections::HashMap;
use std::sync::Arc;

use rayon::prelude::*;
use serde_json::Value as Json;

use crate::graph;
use crate::kind::ErasedStage;
use crate::plan::{PlannedStage, Source};

use super::document::Document;
use super::family::{Families, Family, misfit_of};
use super::kinds::Kinds;
use super::node::{Table, locate, parse_path};
use super::problem::{Problem, Problems};
use super::publish::{Published, check_collisions};
use super::resolve::{Resolver, Use, World};
use super::settings::{self, STRUCTURE};
use super::shape::Misfit;
use super::source::Span;
use super::suggest::remedy;
use super::vars::Scope;

/// At most this many stages of a cycle are spelled out.
const SPELLED: usize = 12;

/// An expanded stage; its [`Source::Stage`]s still count instances in the order of the manifest.
struct Built {
    name: String,
    /// Number of the `[stage.NAME]` it comes from.
    family: usize,
    /// Instances used.
    uses: Vec<Use>,
    publish: Option<(String, Span)>,
    /// `None` when something is wrong with it, which has been reported.
    stage: Option<PlannedStage>,
}

/// Everything needed to build instances.
pub(crate) struct Builder<'a> {
    pub document: &'a Document<'a>,
    pub families: &'a Families<'a>,
    pub kinds: &'a Kinds,
    pub folders: &'a [std::path::PathBuf],
}

/// Where an instance's problems go.
struct Reports<'a> {
    family: &'a Family<'a>,
    template: &'a Table,
    name: String,
    document: &'a Document<'a>,
}

impl Reports<'_> {
    fn misfits(&self, found: Vec<Misfit>, problems: &mut Problems) {
        for misfit in found {
            let problem = self.family.problem(misfit, self.template, &self.document.globals);
            problems.push(match self.family.grid.axes.is_empty() {
                true => problem,
                false => problem.in_instance(&self.name),
            });
        }
    }
}

impl Builder<'_> {
    /// All stages in topological order. What is wrong is reported; the list is then empty.
    pub fn build(&self, problems: &mut Problems) -> Vec<PlannedStage> {
        let world = World::new(self.families, self.folders);
        let results: Vec<(Built, Problems)> = (0..self.families.count)
            .into_par_iter()
            .with_min_len(64)
            .map(|number| {
                let family = self.families.list.partition_point(|family| family.first <= number) - 1;
                let mut problems = Problems::default();
                (self.instance(&world, family, number, &mut problems), problems)
            })
            .collect();
        let mut built = Vec::with_capacity(results.len());
        for (instance, found) in results {
            problems.append(found);
            built.push(instance);
        }
        check_outputs(&built, problems);
        check_publish(&built, problems);
        let order = self.order(&built, problems);
        if !problems.is_empty() {
            return Vec::new();
        }
        in_order(built, &order)
    }

    fn instance(
        &self,
        world: &World<'_>,
        family_number: usize,
        number: usize,
        problems: &mut Problems,
    ) -> Built {
        let family = &self.families.list[family_number];
        let coordinates = family.grid.coordinates(number - family.first);
        let axes = family.grid.axes.iter().zip(&coordinates);
        let locals: Vec<(&str, &Json)> =
            axes.map(|(axis, at)| (axis.name.as_str(), &axis.values[*at])).collect();
        let arm = family.grid.axis("arm").map(|at| family.grid.axes[at].texts[coordinates[at]].as_str());
        let template = family.template(arm, &self.document.globals);
        let scope = Scope { globals: &self.document.globals, locals: &locals };
        let name = family.grid.name(family.name, &coordinates);
        let reports = Reports { family, template: &template, name: name.clone(), document: self.document };
        let mut built = Built { name, family: family_number, uses: Vec::new(), publish: None, stage: None };

        let is_setting = |key: &str| self.kinds.is_setting(family.kind, key);
        let not_here = |key: &str| !is_setting(key) || STRUCTURE.contains(&key);
        let settings = scope.resolve_table(&template, not_here, problems);
        let params = scope.resolve_table(&template, is_setting, problems).map(Json::Object);
        let settings = settings.and_then(|settings| {
            settings::parse(settings).map_err(|found| reports.misfits(found, problems)).ok()
        });
        built.publish = settings.as_ref().and_then(|settings| settings.publish.clone()).map(|path| {
            let place = locate(&template, &parse_path("publish"));
            (path, place.map_or(family.key, |place| place.value))
        });
        let (Some(kind), Some(params)) = (family.kind, params) else {
            return built;
        };

        let mut resolver = Resolver::new(world, family, &coordinates, &template, problems);
        let stage = match self.kinds.parse(kind, &params) {
            Ok(stage) => stage,
            Err(found) => {
                for reference in self.kinds.references(kind, &params) {
                    resolver.probe(reference);
                }
                built.uses = resolver.uses;
                reports.misfits(found, problems);
                return built;
            }
        };
        let mut params = stage.params();
        resolver.rewrite(&mut params);
        let (inputs, changed) = (resolver.inputs, resolver.changed);
        built.uses = resolver.uses;
        let found = stage.check().into_iter().map(|problem| misfit_of(problem, "bad-param"));
        reports.misfits(found.collect(), problems);
        let stage = if changed { self.parse_again(kind, &params, &reports, problems) } else { Some(stage) };
        let (Some(stage), Some(settings)) = (stage, settings) else {
            return built;
        };
        let mut depends_on: Vec<usize> = built.uses.iter().map(|used| used.number).collect();
        depends_on.sort_unstable();
        depends_on.dedup();
        built.stage = Some(PlannedStage {
            name: built.name.clone(),
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
        });
        built
    }

    /// Types params whose references have been rewritten.
    fn parse_again(
        &self,
        kind: usize,
        params: &Json,
        reports: &Reports<'_>,
        problems: &mut Problems,
    ) -> Option<Box<dyn ErasedStage>> {
        match (self.kinds.entry(kind).parse)(params) {
            Ok(stage) => Some(stage),
            Err(problem) => {
                // When a reference is wrong, that has been said.
                if problems.is_empty() {
                    reports.misfits(vec![misfit_of(problem, "bad-param")], problems);
                }
                None
            }
        }
    }

    fn order<'p>(&'p self, built: &'p [Built], problems: &mut Problems) -> Vec<usize> {
        let needs = |built: &Built| {
            let mut needs: Vec<usize> = built.uses.iter().map(|used| used.number).collect();
            needs.sort_unstable();
            needs.dedup();
            needs
        };
        let depends_on: Vec<Vec<usize>> = built.iter().map(needs).collect();
        let cycles = match graph::order(&depends_on) {
            Ok(order) => return order,
            Err(cycles) => cycles,
        };
        let base = |number: usize| -> &'p str { self.families.list[built[number].family].name };
        for cycle in cycles {
            let spelled = |name: &dyn Fn(usize) -> &'p str| {
                let mut names: Vec<&str> = cycle.iter().take(SPELLED).map(|number| name(*number)).collect();
                if cycle.len() > SPELLED {
                    names.extend(["…", name(cycle[0])]);
                }
                names.join(" → ")
            };
            let (bases, names) = (spelled(&base), spelled(&|number| built[number].name.as_str()));
            let mut problem = Problem::new(
                "cycle",
                format!("stages wait for each other: {bases}"),
                "remove one of these references",
            );
            if names != bases {
                problem = problem.in_instance(&names);
            }
            for pair in cycle.windows(2).take(SPELLED) {
                let used = built[pair[0]].uses.iter().find(|used| used.number == pair[1]);
                if let Some(used) = used {
                    problem = problem.at(used.span, format!("`{}` needs `{}`", base(pair[0]), base(pair[1])));
                }
            }
            problems.push(problem);
        }
        Vec::new()
    }
}

/// A reference to a file in an artifact must lead to a declared output, or into or above one.
fn check_outputs(built: &[Built], problems: &mut Problems) {
    let mut outputs: HashMap<usize, Vec<String>> = HashMap::new();
    for used in built.iter().flat_map(|built| &built.uses) {
        let Some(target) = built[used.number].stage.as_ref().filter(|_| !used.path.is_empty()) else {
            continue;
        };
        // Nothing declared, or not everything: any name may be there.
        let declared = outputs.entry(used.number).or_insert_with(|| match target.stage.has_more_outputs() {
            true => Vec::new(),
            false => target.stage.outputs(),
        });
        let inside = |inner: &str, outer: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let fits = |output: &String| inside(&used.path, output) || inside(output, &used.path);
        if declared.is_empty() || declared.iter().any(fits) {
            continue;
        }
        let message =
            format!("`{}` is a `{}` stage, which puts out no `{}`", target.base, target.kind.name, used.path);
        let help = remedy(&used.path, "its outputs", declared.iter().map(String::as_str));
        problems.push(Problem::new("unknown-output", message, help).at(used.span, "no such output"));
    }
}

fn check_publish(built: &[Built], problems: &mut Problems) {
    let published = built.iter().filter_map(|built| {
        let (path, span) = built.publish.as_ref()?;
        Some(Published { stage: &built.name, family: built.family, path, span: *span })
    });
    check_collisions(published.collect(), problems);
}

/// Moves stages into `order` and renumbers what they refer to.
fn in_order(mut built: Vec<Built>, order: &[usize]) -> Vec<PlannedStage> {
    let mut place = vec![0; order.len()];
    for (new, old) in order.iter().enumerate() {
        place[*old] = new;
    }
    let taken = order.iter().filter_map(|old| built[*old].stage.take());
    taken
        .map(|mut stage| {
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
