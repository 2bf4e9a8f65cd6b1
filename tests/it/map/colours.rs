//! The colours of the map differ enough from each other, in both schemes, by the contrast of WCAG 2.

const STYLE: &str = include_str!("../../../src/page/map/map.css");

/// The least contrast of a free block and of one that is held and has no pods.
const FREE: f64 = 1.7;

/// The least contrast of two steps of use.
const STEP: f64 = 1.25;

/// The luminance of the colour that a scheme gives this name.
fn luminance(scheme: &str, name: &str) -> f64 {
    let (_, rest) = scheme.split_once(&format!("--{name}: #")).unwrap_or_else(|| panic!("no colour {name}"));
    let part = |at: usize| {
        let part =
            f64::from(u8::from_str_radix(&rest[at..at + 2], 16).expect("two hexadecimal digits")) / 255.0;
        if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4)
}

fn contrast(scheme: &str, one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(scheme, one), luminance(scheme, other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn a_free_block_differs_from_an_unused_one_and_each_step_of_use_from_the_next() {
    let (light, dark) = STYLE.split_once("@media (prefers-color-scheme: dark)").expect("two schemes");
    for (name, scheme) in [("light", light), ("dark", dark)] {
        for held in ["u", "u0"] {
            let seen = contrast(scheme, "free", held);
            assert!(seen >= FREE, "{name}: {held}: {seen:.2}");
        }
        for step in 0..5 {
            let seen = contrast(scheme, &format!("u{step}"), &format!("u{}", step + 1));
            assert!(seen >= STEP, "{name}: u{step}: {seen:.2}");
        }
    }
}
