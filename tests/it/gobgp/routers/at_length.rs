//! The tests that take longer than `make test` has time for; `make test-routes` runs them.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{LONG, SHORT, assert_sound, configuration, since, start, wait_restarted, wait_right};
use crate::gobgp::bird::{ADDRESS, Bird};
use crate::gobgp::flags;
use crate::routers::oracle::never_two_ways;
use crate::scene::{insist, join_one};
use crate::support::control_plane::Options;
use crate::support::controller::Controller;
use crate::support::gobgp_daemon::Daemon;
use crate::support::objects::{NodeSpec, PoolSpec};
use crate::support::rig::under_oracle;

/// With the times of the page, another replica leads before the daemon sends its table.
#[tokio::test(flavor = "multi_thread")]
async fn routes_stay_when_the_daemon_and_the_leader_are_killed_together() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let (bird, daemon) = start(rig, LONG).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let leader = Controller::start_ready(&rig.control_plane, &flags(&daemon, &[])).await?;
        let first = join_one(rig, NodeSpec::new("a")).await?;
        let second = join_one(rig, NodeSpec::new("b")).await?;
        wait_right(rig, &bird, 2).await?;

        let standby = Controller::start_ready(&rig.control_plane, &flags(&daemon, &[])).await?;
        let quiet = bird.changes()?.len();
        leader.sigkill().await?;
        let daemon = daemon.restart().await?;
        // A node that joins meanwhile has its routes with the others.
        let third = join_one(rig, NodeSpec::new("c")).await?;
        wait_restarted(rig, &bird, 1).await?;
        wait_right(rig, &bird, 3).await?;
        let changes = bird.changes()?;
        let changes = since(&changes, quiet);
        ensure!(changes.len() == 1 && changes[0].what == "added", "{changes:#?}");
        assert_sound(&bird).await?;

        // A daemon that is asked to end closes its sessions, and the router drops their routes.
        let stopped = daemon.terminate().await?;
        insist(rig, async || {
            let left = bird.table().await?;
            ensure!(left.is_empty(), "{left:#?}");
            Ok(())
        })
        .await?;
        let daemon = stopped.start().await?;
        wait_right(rig, &bird, 3).await?;
        Ok((standby, daemon, bird, first, second, third))
    })
    .await
}

/// A cable between gobgpd and the router.
struct Cable {
    port: u16,
    connections: Arc<Mutex<JoinSet<()>>>,
    _plugged_in: JoinSet<()>,
}

impl Cable {
    async fn to(bird: &Bird) -> Result<Self> {
        let listener = TcpListener::bind((ADDRESS, 0)).await?;
        let (port, router) = (listener.local_addr()?.port(), bird.port);
        let connections = Arc::new(Mutex::new(JoinSet::new()));
        let open = Arc::clone(&connections);
        let mut plugged_in = JoinSet::new();
        plugged_in.spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                open.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
                    if let Ok(mut far) = TcpStream::connect((ADDRESS, router)).await {
                        // Both sides notice the end of it.
                        let _ = copy_bidirectional(&mut near, &mut far).await;
                    }
                });
            }
        });
        Ok(Self { port, connections, _plugged_in: plugged_in })
    }

    /// Closes all connections. The next one passes.
    fn cut(&self) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_router_is_right_after_a_cut_session_and_after_a_restart_of_its_own() -> Result<()> {
    under_oracle(Options::default(), async |rig| {
        let folder = rig.control_plane.dir();
        let bird = Bird::start(folder).await?;
        let cable = Cable::to(&bird).await?;
        let daemon = Daemon::start_with(folder, &configuration(cable.port, SHORT)?).await?;
        rig.cluster.create_pool(&PoolSpec::new("p").ipv4(28, &["10.1.0.0/24"])).await?;
        let controller = Controller::start_ready(&rig.control_plane, &flags(&daemon, &[])).await?;
        let first = join_one(rig, NodeSpec::new("a")).await?;
        let second = join_one(rig, NodeSpec::new("b")).await?;
        wait_right(rig, &bird, 2).await?;

        cable.cut();
        let third = join_one(rig, NodeSpec::new("c")).await?;
        wait_restarted(rig, &bird, 1).await?;
        wait_right(rig, &bird, 3).await?;
        never_two_ways(&bird.changes()?, &bird.table().await?)?;

        let bird = bird.restart().await?;
        wait_right(rig, &bird, 3).await?;
        Ok((controller, daemon, cable, bird, (first, second, third)))
    })
    .await
}
