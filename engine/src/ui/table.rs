//! Aligned columns of text.

use std::fmt;

/// Rows under a header; every column as wide as its widest cell, the last one left as it is.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column names.
    pub fn new(header: &[&str]) -> Self {
        Self { rows: vec![header.iter().map(|name| (*name).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..).map_while(width).collect();
        for (at, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = widths[column] - cell.chars().count();
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', pad + 2));
            }
            let end = if at + 1 == self.rows.len() { "" } else { "\n" };
            write!(f, "{}{end}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_whatever_the_alphabet() {
        let mut table = Table::new(&["STAGE", "STATE"]);
        table.row(["größe".into(), "cached".into()]);
        table.row(["x".into(), "to run".into()]);
        assert_eq!(table.to_string(), "STAGE  STATE\ngröße  cached\nx      to run");
    }
}
