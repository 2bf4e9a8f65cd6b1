//! Writes of CiliumPodIPPools, each in the version that the server serves.

use kube::api::{Api, DynamicObject, Patch};
use kube::core::ApiResource;
use tracing::{info, warn};

use super::{Ended, Executor, patch_params};
use crate::controller::client::{ReadError, post_params};
use crate::controller::discovery::served;
use crate::model::outcome::{Answer, Seen};
use crate::model::pod_ip_pool::PodIpPool;
use crate::model::request::PodIpPoolWrite;
use crate::wire::cilium_group::ApiVersion;
use crate::wire::pod_ip_pool;
use crate::wire::side_watched::SideWatched;

impl Executor {
    /// Creates a CiliumPodIPPool, or adds to it. Writing it twice does no harm, so nothing is read where no answer
    /// comes: the watch shows the outcome.
    pub(super) async fn write_pod_ip_pool(&self, write: &PodIpPoolWrite) -> Ended {
        let versions = match served(&self.clients, pod_ip_pool::PLURAL).await {
            Ok(served) => served.versions(),
            Err(error) => return Ok((undiscovered(&error), Seen::Nothing)),
        };
        let mut answer = Answer::Conflict(
            "the server serves CiliumPodIPPool in no version that this controller knows".to_owned(),
        );
        for version in versions {
            match self.write_pod_ip_pool_in(version, write).await? {
                // The server may not know this version.
                (ended @ (Answer::Conflict(_) | Answer::Unknown(_)), _) => answer = ended,
                ended => return Ok(ended),
            }
        }
        Ok((answer, Seen::Nothing))
    }

    async fn write_pod_ip_pool_in(&self, version: ApiVersion, write: &PodIpPoolWrite) -> Ended {
        let resource = ApiResource::erase::<SideWatched<PodIpPool>>(&version);
        let api: Api<DynamicObject> = Api::all_with(self.clients.writes.clone(), &resource);
        let name = write.name.as_str();
        let mut forbidden = false;
        let request = async {
            let written = match (pod_ip_pool::new_pod_ip_pool(write, version), pod_ip_pool::patch(write)) {
                (Some(new), _) => {
                    let new: DynamicObject = serde_json::from_value(new).map_err(kube::Error::SerdeError)?;
                    api.create(&post_params(), &new).await
                }
                (None, patch) => {
                    api.patch(name, &patch_params(), &Patch::Merge(patch.unwrap_or_default())).await
                }
            };
            forbidden = matches!(&written, Err(kube::Error::Api(status)) if status.is_forbidden());
            written
        };
        Ok(match self.attempt(request).await {
            Ok(written) => {
                let (created, version) = (write.on.is_none(), version.as_str());
                info!(name, version, created, "wrote the CiliumPodIPPool");
                let written =
                    serde_json::from_value::<SideWatched<PodIpPool>>(serde_json::to_value(written)?)?;
                let seen = written.into_value().map_or(Seen::Nothing, |pool| Seen::PodIpPool(Box::new(pool)));
                (Answer::Done, seen)
            }
            Err(Answer::Refused(why, wait)) => {
                let needs = if forbidden {
                    "; --create-podippools needs the right to create and patch ciliumpodippools, which \
                     the chart grants with `createPodIPPools`"
                } else {
                    ""
                };
                warn!(name, why, "CiliumPodIPPool refused{needs}");
                (Answer::Refused(why, wait), Seen::Nothing)
            }
            // Another writer may have created it; the watch shows that.
            Err(answer) => (answer, Seen::Nothing),
        })
    }
}

/// Nothing was written: the version in which to write is unknown.
fn undiscovered(error: &ReadError) -> Answer {
    Answer::Refused(format!("can't look up the version of CiliumPodIPPool: {error}"), error.asked_wait())
}
