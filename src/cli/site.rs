//! The site of the documents, if the builder of this program publishes one.

/// Its address, from the variable `DOCS_URL` of the build.
const BASE: Option<&str> = option_env!("DOCS_URL");

/// The address of a heading of a page, such as `reference/checks`. None is known without a site.
pub(super) fn address(page: &str, anchor: &str) -> Option<String> {
    below(BASE?, page, anchor)
}

fn below(base: &str, page: &str, anchor: &str) -> Option<String> {
    let base = Some(base.trim_end_matches('/')).filter(|base| !base.is_empty())?;
    let anchor = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
    Some(format!("{base}/{page}.html{anchor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_page_below_the_site_and_none_without_a_site() {
        let page = |base: &str, anchor: &str| below(base, "reference/checks", anchor);
        let expected = Some("https://example.com/ipam/reference/checks.html#nip0101".to_owned());
        assert_eq!(page("https://example.com/ipam/", "nip0101"), expected);
        assert_eq!(
            page("https://example.com", ""),
            Some("https://example.com/reference/checks.html".to_owned())
        );
        assert_eq!(page("", "nip0101"), None);
    }
}
