//! The page in a real browser: it opens without errors and without network, filters and links work,
//! mathematics is set, nothing sticks out at any width, light or dark.
//!
//! `REPORT_SHOTS=DIR` keeps pictures of it for a look.

use std::path::Path;

use serde_json::json;

use super::browser::{Browser, program};
use super::{facts, report};
use crate::kinds::report::Report;

/// Milliseconds from a change of the filter named until the list shows what passes.
fn filter(browser: &mut Browser, name: &str, value: &str) -> (String, f64) {
    let change = format!(
        "(() => {{ const form = document.querySelector('.filters'); const start = performance.now(); \
         form.elements['{name}'].value = {value}; \
         form.dispatchEvent(new Event('input')); document.body.offsetHeight; \
         return [form.querySelector('output').textContent, performance.now() - start]; }})()",
        value = json!(value)
    );
    let told = browser.evaluate(&change);
    (told[0].as_str().unwrap().to_owned(), told[1].as_f64().unwrap())
}

fn completed(out: &Path, questions: usize) -> Report {
    let stage = report(out, questions);
    engine::kind::Stage::complete(&stage, out, &facts()).unwrap();
    stage
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let shots = std::env::var_os("REPORT_SHOTS");
    completed(dir.path(), 120);
    let page = dir.path().join("report.html");
    let mut browser = Browser::start(&program);
    for (width, scheme) in [(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")] {
        browser.look(width, 900, scheme);
        browser.open(&page);
        // Nothing but tables, charts and the like, which scroll by themselves, is wider than the window.
        let over = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.evaluate(over), json!(0), "{width} pixels, {scheme}");
        let colours = browser.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]",
        );
        let expected = if scheme == "light" { "rgb(255, 255, 255)" } else { "rgb(20, 23, 27)" };
        assert_eq!(colours[0], json!(expected));
        if let Some(shots) = &shots {
            let name = |part: &str| Path::new(shots).join(format!("{part}-{width}-{scheme}.png"));
            browser.screenshot(&name("page"), true);
            browser.evaluate("document.getElementById('samples').scrollIntoView()");
            browser.screenshot(&name("samples"), false);
            browser.evaluate("document.getElementById('made').scrollIntoView()");
            browser.screenshot(&name("made"), false);
        }
    }
    assert_eq!(browser.problems, Vec::<String>::new());
}

#[test]
fn filters_links_and_mathematics_work() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    completed(dir.path(), 120);
    let mut browser = Browser::start(&program);
    browser.look(1400, 900, "light");
    browser.open(&dir.path().join("report.html"));
    assert_eq!(filter(&mut browser, "arm", "lora").0, "120 of 120");
    // The counts follow from how the answers were made, see `graded`.
    let truth = |holds: &dyn Fn(usize, usize) -> bool| (0..120).filter(|id| holds(2, *id)).count();
    let right = |arm: usize, id: usize| (id * 7 + arm * 3) % 10 < 5 + arm && id % 40 != 3;
    type Holds<'a> = &'a dyn Fn(usize, usize) -> bool;
    let cases: [(&str, Holds); 9] = [
        ("changed", &|arm, id| right(0, id) != right(arm, id)),
        // Cut answers are alike; one of the three is the only one of its benchmark.
        ("copied", &|_, id| id % 40 == 3 && id * 5 >= 120),
        ("right", &|arm, id| right(arm, id)),
        ("wrong", &|arm, id| !right(arm, id)),
        ("gained", &|arm, id| !right(0, id) && right(arm, id)),
        ("lost", &|arm, id| right(0, id) && !right(arm, id)),
        ("truncated", &|_, id| id % 40 == 3),
        ("unanswered", &|_, id| id % 40 == 3),
        ("disagree", &|arm, id| right(arm, id) && id % 17 == 0),
    ];
    for (show, holds) in cases {
        let expected = format!("{} of 120", truth(holds));
        assert_eq!(filter(&mut browser, "show", show).0, expected, "{show}");
    }
    assert_eq!(filter(&mut browser, "show", "all").0, "120 of 120");
    assert_eq!(filter(&mut browser, "search", "test-119").0, "1 of 120");
    // Question 5 is answered with 10, rightly; question 4 would be if it were answered wrongly.
    assert!(right(2, 5) && right(2, 4));
    assert_eq!(filter(&mut browser, "search", "=10").0, "1 of 120");
    filter(&mut browser, "search", "");

    // A number of the table leads to its samples, side by side across the arms.
    let link = "(async () => { const a = document.querySelector('a[href*=\"arm=lora\"][href*=\"show=gained\"]'); \
                a.click(); await new Promise((done) => setTimeout(done, 50)); \
                const form = document.querySelector('.filters'); \
                return [form.elements.show.value, form.elements.arm.value, \
                        document.querySelectorAll('.answer').length]; })()";
    assert_eq!(browser.evaluate(link), json!(["gained", "lora", 5]));
    assert!(browser.evaluate("location.hash").as_str().unwrap().contains("show=gained"));

    // Formulas are set, the extracted span in one of them is marked, and prices stay prices.
    browser.evaluate("location.hash = '#samples?id=test-1'; new Promise((done) => setTimeout(done, 50))");
    let seen = browser.evaluate(
        "({ set: document.querySelectorAll('.output .katex').length, \
            marked: [...document.querySelectorAll('.output .hit')].map((n) => n.textContent.replace(/\\s/g, '')), \
            problem: document.querySelector('.problem').textContent })",
    );
    assert!(seen["set"].as_u64().unwrap() >= 10, "{seen}");
    assert_eq!(seen["marked"].as_array().unwrap().len(), 5, "{seen}");
    assert!(seen["problem"].as_str().unwrap().contains("costs $3, and the other $4"), "{seen}");
    filter(&mut browser, "math", "source");
    let source = browser.evaluate(
        "[document.querySelectorAll('.output .katex').length, document.querySelectorAll('.output mark').length]",
    );
    assert_eq!(source, json!([0, 5]));

    // The graph's boxes lead to their rows.
    let graph = "[document.querySelectorAll('#made .graph a').length, \
                 [...document.querySelectorAll('#made .graph a')].every((a) => \
                 document.querySelector(a.getAttribute('href')))]";
    assert_eq!(browser.evaluate(graph), json!([facts().stages.len(), true]));
    assert_eq!(browser.problems, Vec::<String>::new());
}

/// Five arms on GSM8K's 1,319 questions; prints what it measures.
#[test]
fn a_large_page_is_quick() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    completed(dir.path(), 1319);
    let page = dir.path().join("report.html");
    let bytes = std::fs::metadata(&page).unwrap().len();
    let mut browser = Browser::start(&program);
    browser.look(1400, 900, "light");
    let opened = browser.open(&page);
    let mut slowest: f64 = 0.0;
    for (name, value) in
        [("show", "flipped"), ("show", "disagree"), ("search", "To solve"), ("search", "5"), ("show", "all")]
    {
        slowest = slowest.max(filter(&mut browser, name, value).1);
    }
    let scroll = "(() => { const list = document.querySelector('.list'); const start = performance.now(); \
                  for (let i = 0; i < 20; i++) { list.scrollTop = i * 3000; list.onscroll(); } \
                  return (performance.now() - start) / 20; })()";
    let scrolled = browser.evaluate(scroll).as_f64().unwrap();
    // Only what is visible is in the page.
    assert!(browser.evaluate("document.querySelectorAll('.item').length").as_u64().unwrap() < 40);
    println!(
        "1,319 questions × 5 arms: {:.1} MB, opened in {opened:.0} ms, slowest filter {slowest:.0} ms, \
         a scroll {scrolled:.1} ms",
        bytes as f64 / 1e6
    );
    assert_eq!(browser.problems, Vec::<String>::new());
}
