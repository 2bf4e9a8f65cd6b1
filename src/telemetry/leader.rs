//! Who leads, as `/readyz` and `/metrics` show it.

/// Who leads of the processes that run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leader {
    /// There is no election: every process writes.
    Unelected,
    /// This process.
    This,
    /// The process with this identity, which starts with the name of its Pod.
    Other(String),
    /// No process, as far as this one knows.
    Nobody,
}

impl Leader {
    /// Whether this process may write.
    #[must_use]
    pub fn is_this(&self) -> bool {
        match self {
            Self::Unelected | Self::This => true,
            Self::Other(_) | Self::Nobody => false,
        }
    }

    /// The line of `/readyz` of a process on standby.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        match self {
            Self::Unelected | Self::This => None,
            Self::Other(identity) => {
                let name = identity.split_once('_').map_or(identity.as_str(), |(name, _)| name);
                Some(format!("standby: {name} leads"))
            }
            Self::Nobody => Some("standby: no replica leads yet".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_names_the_pod_that_leads() {
        let line = |identity: &str| Leader::Other(identity.to_owned()).line();
        assert_eq!(line("ipam-7f_0a1b").as_deref(), Some("standby: ipam-7f leads"));
        assert_eq!(line("by hand").as_deref(), Some("standby: by hand leads"));
        assert_eq!(Leader::Nobody.line().as_deref(), Some("standby: no replica leads yet"));
        assert_eq!((Leader::This.line(), Leader::Unelected.line()), (None, None));
    }
}
