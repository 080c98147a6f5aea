//! A large filter lies in huge pages where the system gives them to who asks.

use std::fs;

use crate::support::Launch;

const CONFIG: &str = r#"
    [filters.large]
    profile = "text"
    capacity = 100000000
    false_positive_rate = 0.01
"#;

/// A number of KiB from a file of `/proc` that has lines like `AnonHugePages:  2048 kB`.
fn kibibytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

/// Whether the system gives huge pages to who asks, and to nobody else.
fn are_given_on_request() -> bool {
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let are_given = setting.is_ok_and(|setting| setting.contains("[madvise]"));
    if !are_given {
        eprintln!("not tried: this system does not give huge pages on request");
    }
    are_given
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allocator_that_hears_only_some_wishes_is_asked_until_it_hears() {
    if !are_given_on_request() {
        return;
    }
    // The glibc of Debian 12 passes over one in four.
    for _ in 0..8 {
        let launch = Launch::new().env("GLIBC_TUNABLES", "");
        let service = launch.start().await;
        let smaps = fs::read_to_string(format!("/proc/{}/smaps", service.pid())).unwrap();
        let (_, heap) = smaps.split_once("[heap]").unwrap();
        let flags = heap.lines().find_map(|line| line.strip_prefix("VmFlags:"));
        assert!(flags.unwrap().contains(" hg"), "{flags:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bits_of_a_large_filter_lie_in_huge_pages_where_the_system_gives_them_on_request() {
    if !are_given_on_request() {
        return;
    }
    for (tunables, is_asked) in [("", true), ("glibc.malloc.hugetlb=0", false)] {
        let launch = Launch::new().config(CONFIG).env("GLIBC_TUNABLES", tunables);
        let service = launch.start().await;
        service.wait_live("large").await;
        // Each item touches seven pages, wherever they are: these touch nearly all.
        let items: Vec<_> = (0..20_000).map(|item| format!("item {item}")).collect();
        let path = "/v1/filters/large/bulk-load";
        let loaded = service.post_text(path, "text/plain", items.join("\n"));
        loaded.await.expect_status(200);
        let smaps = fs::read_to_string(format!("/proc/{}/smaps_rollup", service.pid())).unwrap();
        let huge_mebibytes = kibibytes(&smaps, "AnonHugePages:") / 1024;
        // 114 MiB of bits. A fragmented memory may have fewer huge pages left.
        let as_expected = if is_asked {
            huge_mebibytes > 30
        } else {
            huge_mebibytes == 0
        };
        assert!(
            as_expected,
            "{huge_mebibytes} MiB in huge pages, asked: {is_asked}"
        );
    }
}
