//! CiliumPodIPPools, which are followed beside the world where blocks are published under their names, or read once.
//!
//! Where Cilium's operator has not installed their definition, there are none. Knows no policy.

use tokio::sync::watch;

use super::client::Clients;
use super::input::Input;
use super::side_watch::{SideWatch, Source};
use super::watch::Watches;
use crate::model::pod_ip_pool::PodIpPool;
use crate::publisher::mode::Mode;
use crate::telemetry::api_health::POD_IP_POOLS;
use crate::wire::pod_ip_pool;

/// Whether blocks are published under names in this mode.
pub(super) fn are_of_use(mode: &Mode) -> bool {
    match mode {
        Mode::Active(publisher) => publisher.traits().has_pod_ip_pools,
        Mode::Passive(_) => false,
    }
}

/// Those of the cluster.
pub(super) fn pod_ip_pools(clients: &Clients) -> SideWatch<PodIpPool> {
    let client = clients.reads.clone();
    SideWatch {
        source: Source::Cilium {
            plural: pod_ip_pool::PLURAL,
            api: Box::new(move |version| kube::Api::all_with(client.clone(), &version)),
        },
        selector: None,
        kind: POD_IP_POOLS,
        what: "CiliumPodIPPools".to_owned(),
        without: "the CiliumPodIPPools are unknown; nodes are served anyway",
    }
}

/// Follows them from when `is_wanted` says so, until the watches are stopped.
pub(super) async fn follow(watches: Watches, mut is_wanted: watch::Receiver<bool>) -> anyhow::Result<()> {
    let follow = async {
        // If the mode can't change any more, they will never be wanted.
        if is_wanted.wait_for(|wanted| *wanted).await.is_err() {
            std::future::pending::<()>().await;
        }
        pod_ip_pools(&watches.clients).follow(&watches, Input::PodIpPools).await
    };
    watches.stop.run_until_cancelled(follow).await.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::super::client::tests::{NO_ANSWER, answered_by, refusal};
    use super::super::side_watch::PATIENCE;
    use super::super::side_watch::tests::{first_input, watches_of};
    use super::*;
    use crate::model::pod_ip_pool::PodIpPoolNews;

    /// Follows those of a server with these answers. Returns the first input of the loop, and how long it took.
    async fn first_news(
        answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
    ) -> (PodIpPoolNews, Duration) {
        let (gate, is_wanted) = watch::channel(false);
        gate.send(true).unwrap();
        let (input, waited) = first_input(answer, |watches| follow(watches, is_wanted)).await;
        let Some(Input::PodIpPools(news)) = input else { panic!("{input:?}") };
        (news, waited)
    }

    #[tokio::test(start_paused = true)]
    async fn all_of_the_cluster_are_listed() {
        let (news, _) = first_news(|target| {
            if target.ends_with("/apis/cilium.io/v2alpha1") {
                return (200, json!({"resources": [{"name": "ciliumpodippools"}]}));
            }
            if target.ends_with("/apis/cilium.io/v2") {
                return (200, json!({"resources": [{"name": "ciliumnodes"}]}));
            }
            assert!(target.contains("/v2alpha1/ciliumpodippools"), "{target}");
            let pool = json!({"metadata": {"name": "web", "uid": "u", "resourceVersion": "5"},
                              "spec": {"ipv4": {"cidrs": ["10.1.0.0/16"], "maskSize": 26}}});
            match target {
                _ if target.contains("watch=true") => (NO_ANSWER, Value::Null),
                _ => (200, json!({"metadata": {"resourceVersion": "7"}, "items": [pool]})),
            }
        })
        .await;
        let PodIpPoolNews::Listed(listed) = news else { panic!("{news:?}") };
        assert_eq!(listed.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["web"]);
    }

    #[tokio::test(start_paused = true)]
    async fn where_they_are_not_defined_there_are_none() {
        let (news, waited) = first_news(|_| refusal(404)).await;
        assert_eq!((news, waited), (PodIpPoolNews::Listed(Vec::new()), Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_right_the_start_does_not_wait() {
        let (news, waited) = first_news(|_| refusal(403)).await;
        let why = "can't list CiliumPodIPPools: refused with 403";
        assert_eq!((news, waited), (PodIpPoolNews::Unlisted(why.to_owned()), Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_in_trouble_is_waited_for_a_while() {
        let (news, waited) = first_news(|_| refusal(503)).await;
        assert!(matches!(news, PodIpPoolNews::Unlisted(_)), "{news:?}");
        assert!((PATIENCE..2 * PATIENCE).contains(&waited), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_asks_for_them_before_they_are_wanted() {
        let (clients, asked) = answered_by(|_| refusal(500));
        let (watches, _reported, _events) = watches_of(clients);
        let stop = watches.stop.clone();
        let (_gate, is_wanted) = watch::channel(false);
        let later = async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            stop.cancel();
        };
        let (end, ()) = tokio::join!(follow(watches, is_wanted), later);
        end.unwrap();
        assert!(asked.lock().unwrap().is_empty());
    }
}
