//! Tables for people: a row of headings, and columns as wide as their widest cells.

use comfy_table::{ContentArrangement, Table, presets::NOTHING};

/// Writes the table of these rows, each with as many cells as there are headings.
pub fn table<const N: usize>(headings: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings).add_rows(rows);
    let (last, columns) = (N.saturating_sub(1), table.column_iter_mut());
    columns.for_each(|column| _ = column.set_padding((0, if column.index < last { 2 } else { 0 })));
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let rows = [["1".to_owned(), "Zoë".to_owned()], ["4096".to_owned(), "a rather long one".to_owned()]];
        let expected = "NUMBER  NAME\n1       Zoë\n4096    a rather long one\n";
        assert_eq!(table(["NUMBER", "NAME"], rows), expected);
    }
}
