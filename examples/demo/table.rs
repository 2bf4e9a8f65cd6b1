//! The table of the pools.

use crate::state::State;

const HEAD: [&str; 8] = ["NAME", "PRIORITY", "SELECTOR", "NODES", "BLOCKS", "USED", "FREE", "CONDITIONS"];

/// A line for each pool; NODES are served of selected, BLOCKS held of total, FREE the addresses without a pod.
pub(crate) fn pools(state: &State) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(state.pools.iter().map(|pool| {
        [
            pool.name.clone(),
            pool.priority.to_string(),
            pool.selector.clone(),
            format!("{}/{}", pool.served, pool.selected),
            format!("{}/{}", pool.held, pool.total),
            pool.used.to_string(),
            pool.free.to_string(),
            pool.conditions.join(" "),
        ]
    }));
    let widths: [usize; 8] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}
