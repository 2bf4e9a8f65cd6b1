//! Requests for the map of the address space, which only the owner of the world can answer.
//!
//! For any number of requests, the loop makes at most one map per second: it costs a pass over all nodes and claims.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::view::map::Map;

/// How long later requests get the same map.
const FRESH: Duration = Duration::from_secs(1);

/// How long a request waits for its answer. The loop makes one between two turns, unless it has not started yet.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Both sides: that of the loop, and that of the HTTP server.
#[derive(Debug, Clone, Default)]
pub struct MapRequests {
    wanted: Arc<Notify>,
    made: watch::Sender<Option<(Instant, Arc<Drawn>)>>,
}

/// A map, and its page once a client has asked for it.
#[derive(Debug)]
pub(super) struct Drawn {
    map: Map,
    page: OnceLock<Bytes>,
}

impl Drawn {
    /// The page, which `render` makes once per map: many clients cost as much as one.
    pub(super) fn page(&self, render: impl FnOnce(&Map) -> String) -> Bytes {
        self.page.get_or_init(|| render(&self.map).into()).clone()
    }
}

impl MapRequests {
    /// Waits until a map is asked for.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Answers all requests that wait.
    pub fn answer(&self, map: Map) {
        self.made.send_replace(Some((Instant::now(), Arc::new(Drawn { map, page: OnceLock::new() }))));
    }

    /// A map that is at most a second old; `None` if the loop makes none in time.
    pub(super) async fn ask(&self) -> Option<Arc<Drawn>> {
        let mut made = self.made.subscribe();
        if let Some((at, map)) = &*made.borrow_and_update()
            && at.elapsed() < FRESH
        {
            return Some(map.clone());
        }
        self.wanted.notify_one();
        tokio::time::timeout(TIME_LIMIT, made.changed()).await.ok()?.ok()?;
        made.borrow().as_ref().map(|(_, map)| map.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::Timestamp;

    fn map(second: i64) -> Map {
        Map {
            at: Timestamp::from_second(second).unwrap(),
            mode: Ok("crd".to_owned()),
            pools: Vec::new(),
            waiting: Vec::new(),
            problems: Vec::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_within_a_second_gets_the_same_map() {
        let requests = MapRequests::default();
        let second_of = |drawn: Option<Arc<Drawn>>| drawn.map(|drawn| drawn.map.at.as_second());
        let answer = async {
            requests.wanted().await;
            requests.answer(map(1));
        };
        assert_eq!(second_of(tokio::join!(requests.ask(), answer).0), Some(1));
        assert_eq!(second_of(requests.ask().await), Some(1), "nobody answers");
        tokio::time::advance(FRESH).await;
        let answer = async {
            requests.wanted().await;
            requests.answer(map(2));
        };
        assert_eq!(second_of(tokio::join!(requests.ask(), answer).0), Some(2));
    }

    #[test]
    fn a_page_is_rendered_once_per_map() {
        let drawn = Drawn { map: map(1), page: OnceLock::new() };
        assert_eq!(drawn.page(|map| format!("at {}", map.at.as_second())), "at 1");
        assert_eq!(drawn.page(|_| unreachable!("it is there")), "at 1");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_loop_there_is_no_map() {
        assert!(MapRequests::default().ask().await.is_none());
    }
}
