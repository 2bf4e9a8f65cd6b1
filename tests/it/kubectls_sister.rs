//! The command line beside kubectl's: each command accepts the kubeconfigs, environments and flags that kubectl accepts.
//! Where kubectl fails, a command says why in one sentence.
//!
//! The real kubectl is the judge, on a real API server. Servers between the two are in [`fronts`], and [`bench`] runs
//! both programs.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bench::{Bench, Case, OURS};
use fronts::Front;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::answers::documented;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::objects::{NodeSpec, PoolSpec};
use crate::support::rig::without_product;

mod bench;
mod fronts;

/// A pool that selects one node.
const POOL: &str = "apiVersion: nodeipam.io/v1alpha1\nkind: NodeIPPool\nmetadata: {name: a}\nspec:\n  \
                    nodeSelector: {matchLabels: {zone: a}}\n  ipv4: {blockSize: 26, cidrs: [{cidr: 10.9.0.0/16}]}\n";

/// A key of P-521 for this test alone, which rcgen can't generate.
const P521: &str = concat!(
    "MIHuAgEAMBAGByqGSM49AgEGBSuBBAAjBIHWMIHTAgEBBEIAzdQNvVWMAoLOLHVoR6kk/JP4BbbTpmg1R1ao4HKqEDW8fFvNM0IG",
    "UEUE9zGQMpJDy1yixyrsdGSukhKfJkZW7gOhgYkDgYYABADNZXyc+CS7ohmsxXVNP+V++SFvvVVoRzR8mu35BNFNshlsGANAvYUw",
    "ImHwGM+rynUQefxESUnDVLgf41p6zJ4HOQF2Y3s88LP6KEzsGQuFk+nFo8KqRmxcYoG0NWZwndSsqAlncEyLR7s3em95mM1KcRwo",
    "IncmVKqSH28sPva8OzLckw==",
);

/// A server without a controller, with a node and its pool.
async fn on_a_bench(test: impl AsyncFnOnce(&Bench) -> Result<()>) -> Result<()> {
    without_product(Options::default(), async |rig| {
        rig.cluster.create_node(&NodeSpec::new("n1").label("zone", "a")).await?;
        rig.cluster.create_pool(&PoolSpec::new("a").select("zone", "a").ipv4(26, &["10.9.0.0/16"])).await?;
        test(&Bench::new(&rig.control_plane)?).await
    })
    .await
}

/// A proxy behind TLS. The authorities of the kubeconfig are also those of its proxy.
fn behind_tls(
    bench: &Bench,
    proxy: &Front,
    certificate: &rcgen::Certificate,
    away: &Value,
) -> Result<[Case; 2]> {
    let data = "certificate-authority-data";
    let mut authorities = STANDARD.decode(bench.cluster()[data].as_str().unwrap_or_default())?;
    authorities.extend(format!("\n{}", certificate.pem()).into_bytes());
    let authorities = STANDARD.encode(authorities);
    let uri = format!("https://{}", proxy.address);
    let mut away = away.clone();
    away["clusters"][0]["cluster"][data] = authorities.clone().into();
    Ok([
        Case::new("proxy-url https", bench.config_with(&json!({"proxy-url": uri, data: authorities}))),
        Case::new("HTTPS_PROXY https", away).with("HTTPS_PROXY", &uri),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_are_used_as_kubectl_uses_them() -> Result<()> {
    on_a_bench(async |bench| {
        let (http, socks) = (Front::connect(bench.address).await?, Front::socks(bench.address).await?);
        let (by_http, by_socks) = (format!("http://{}", http.address), format!("socks5://{}", socks.address));
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.self_signed(&key)?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
        let https = Front::connect_tls(bench.address, certificate.der().clone(), key).await?;
        // Only a proxy knows the name, and loopback is never proxied by the environment.
        let port = bench.address.port();
        let away = bench.config_with(&json!({
            "server": format!("https://api.rig.invalid:{port}"), "tls-server-name": "127.0.0.1",
        }));
        let here = bench.config_with(&json!({}));
        let dead = "http://127.0.0.1:1";
        bench
            .accepted([
                Case::new("proxy-url http", bench.config_with(&json!({"proxy-url": by_http}))),
                Case::new("proxy-url socks5", bench.config_with(&json!({"proxy-url": by_socks}))),
                Case::new(
                    "proxy-url before the environment",
                    bench.config_with(&json!({"proxy-url": by_http})),
                )
                .with("HTTPS_PROXY", dead)
                .with("NO_PROXY", "*"),
                Case::new("HTTPS_PROXY", away.clone()).with("HTTPS_PROXY", &by_http),
                Case::new("https_proxy without a scheme", away.clone())
                    .with("https_proxy", http.address.to_string()),
                Case::new("HTTPS_PROXY socks5", away.clone()).with("HTTPS_PROXY", &by_socks),
                Case::new("an exception for the proxy", away.clone())
                    .with("HTTPS_PROXY", &by_http)
                    .with("NO_PROXY", "127.0.0.1,localhost"),
                Case::new("loopback", here.clone()).with("HTTPS_PROXY", dead),
                Case::new("no https", here).with("HTTP_PROXY", dead),
            ])
            .await?;
        ensure!(http.accepted() > 0 && socks.accepted() > 0, "no proxy was used");
        bench.accepted(behind_tls(bench, &https, &certificate, &away)?).await?;
        ensure!(https.accepted() > 0, "no proxy behind TLS was used");
        bench
            .refused(
                Case::new("an exception for the server", away.clone())
                    .with("HTTPS_PROXY", &by_http)
                    .with("NO_PROXY", ".rig.invalid"),
                ["can't reach the API server https://api.rig.invalid", "context `rig`"],
            )
            .await?;
        bench
            .refused(
                Case::new("a proxy that is away", away).with("HTTPS_PROXY", dead),
                ["through the proxy http://127.0.0.1:1/ of HTTPS_PROXY", "connections are refused"],
            )
            .await?;
        bench
            .refused(
                Case::new("another protocol", bench.config_with(&json!({"proxy-url": "ftp://127.0.0.1"}))),
                ["proxy-url: a proxy speaks http, https or socks5, and not ftp"],
            )
            .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn kubeconfigs_are_merged_and_chosen_from_as_kubectl_does() -> Result<()> {
    on_a_bench(async |bench| {
        let whole = bench.config_with(&json!({}));
        let file = bench.write("whole", whole.to_string())?;
        let empty =
            bench.write("empty", r#"{"apiVersion": "v1", "kind": "Config", "current-context": ""}"#)?;
        let mut elsewhere = whole.clone();
        elsewhere["current-context"] = "gone".into();
        let mut chosen = whole.clone();
        chosen["current-context"] = Value::Null;
        let grouped = {
            let mut user = bench.user();
            user["as"] = "someone".into();
            user["as-groups"] = json!(["system:masters", "others"]);
            Bench::config(&bench.cluster(), &user)
        };
        let bare = json!({"apiVersion": "v1", "kind": "Config"});
        let server = format!("https://{}", bench.address);
        let without_server = bench.config_with(&json!({"server": "https://127.0.0.1:1"}));
        let token = bench.token();
        let in_list = |list: &str| Case::new("a list of files", bare.clone()).with("KUBECONFIG", list);
        bench
            .accepted([
                Case::new("a file", whole.clone()),
                in_list(&format!("/nowhere/config:{file}")),
                in_list(&format!("{empty}:{file}")),
                in_list(&format!(":{file}:")),
                Case::new("--kubeconfig", bare.clone()).flags(&["--kubeconfig", &file]),
                Case::new("--context", elsewhere.clone()).flags(&["--context=rig"]),
                Case::new("--cluster and --user", chosen.clone()).flags(&["--cluster", "c", "--user", "u"]),
                Case::new("--server", without_server).flags(&["--server", &server]),
                Case::new("-s", whole.clone()).flags(&["-s", &server]),
                Case::new("--token", Bench::config(&bench.cluster(), &json!({}))).flags(&["--token", &token]),
                Case::new("as", grouped),
                Case::new("--as", whole.clone()).flags(&["--as=someone", "--as-group=system:masters"]),
                Case::new("--request-timeout", whole.clone()).flags(&["--request-timeout=20"]),
                Case::new("-n", whole.clone()).flags(&["-n", "kube-system"]),
            ])
            .await?;
        bench
            .refused(
                Case::new("an unknown context", elsewhere),
                ["the context `gone` does not exist in ", "/config; those that exist: rig"],
            )
            .await?;
        bench
            .refused(
                Case::new("an unknown cluster", whole.clone()).flags(&["--cluster", "x"]),
                ["the cluster `x` does not exist", "those that exist: c"],
            )
            .await?;
        bench
            .refused(
                Case::new("an unknown user", whole.clone()).flags(&["--user", "x"]),
                ["the user `x` does not exist", "those that exist: u"],
            )
            .await?;
        bench
            .refused(
                Case::new("a group without a user", whole.clone()).flags(&["--as-group", "x"]),
                ["--as-group needs --as"],
            )
            .await?;
        bench
            .refused(
                Case::new("a file that is missing", whole.clone()).flags(&["--kubeconfig", "missing"]),
                ["the kubeconfig missing can't be read"],
            )
            .await?;
        let broken = bench.write("broken", "clusters: [}")?;
        bench
            .refused(
                Case::new("a broken file", whole.clone()).with("KUBECONFIG", broken),
                ["/broken can't be read"],
            )
            .await?;
        bench
            .refused(
                Case::new("no file", whole).with("KUBECONFIG", "/nowhere/config"),
                ["no cluster is configured: /nowhere/config does not exist"],
            )
            .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn credential_plugins_speak_for_themselves() -> Result<()> {
    on_a_bench(async |bench| {
        let token = bench.token();
        let plugin = |fields: Value| {
            let mut exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "IfAvailable"});
            for (name, value) in fields.as_object().into_iter().flatten() {
                exec[name] = value.clone();
            }
            Bench::config(&bench.cluster(), &json!({"exec": exec}))
        };
        let answer = |status: &Value| {
            json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})
        };
        let by_token = answer(&json!({"token": token})).to_string();
        bench.script("token", &format!("test -n \"$NAME\" && test \"$1\" = get || exit 3\necho '{by_token}'"))?;
        let user = bench.user();
        let text = |field: &str| -> Result<String> {
            Ok(String::from_utf8(STANDARD.decode(user[field].as_str().unwrap_or_default())?)?)
        };
        let by_certificate = answer(&json!({
            "clientCertificateData": text("client-certificate-data")?, "clientKeyData": text("client-key-data")?,
        }));
        bench.write("certificate.json", by_certificate.to_string())?;
        bench.script("certificate", &format!("cat {}", bench.path("certificate.json").display()))?;
        bench.script(
            "informed",
            &format!("case \"$KUBERNETES_EXEC_INFO\" in *certificate-authority-data*) ;; *) exit 4 ;; esac\necho '{by_token}'"),
        )?;
        bench.script("failing", "echo 'the session has expired: run login' >&2\nexit 7")?;
        bench.script("empty", "true")?;
        bench
            .accepted([
                Case::new(
                    "a token",
                    plugin(json!({"command": "./token", "args": ["get"], "env": [{"name": "NAME", "value": "x"}]})),
                ),
                Case::new("a certificate", plugin(json!({"command": "./certificate"}))),
                Case::new("information", plugin(json!({"command": "./informed", "provideClusterInfo": true}))),
            ])
            .await?;
        let hint = "install it with: apt install cloud-login";
        bench
            .refused(
                Case::new("missing", plugin(json!({"command": "cloud-login", "installHint": hint}))),
                ["the credential plugin cloud-login of the kubeconfig is not installed", hint],
            )
            .await?;
        bench
            .refused(
                Case::new("failing", plugin(json!({"command": "./failing"}))),
                ["/failing failed (exit status: 7): the session has expired: run login"],
            )
            .await?;
        bench.refused(Case::new("empty", plugin(json!({"command": "./empty"}))), ["/empty returned no credentials"]).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_accepted_as_kubectl_accepts_them() -> Result<()> {
    on_a_bench(async |bench| {
        let authority = bench.cluster()["certificate-authority-data"].as_str().unwrap_or_default().to_owned();
        let authority = CertificateDer::from_pem_slice(&STANDARD.decode(authority)?)?;
        let names = || CertificateParams::new(vec!["127.0.0.1".to_owned()]);
        let issuer = {
            let mut params = CertificateParams::new(Vec::new())?;
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            CertifiedIssuer::self_signed(params, KeyPair::generate()?)?
        };
        let mut own = names()?;
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let mut late = own.clone();
        late.not_after = rcgen::date_time_ymd(2020, 1, 1);
        let key = KeyPair::generate()?;
        let signed = names()?.signed_by(&key, &issuer)?;
        let other = CertificateParams::new(vec!["elsewhere.invalid".to_owned()])?.self_signed(&key)?;
        let serve = async |certificate: &rcgen::Certificate| {
            let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
            Front::tls(bench.address, authority.clone(), vec![certificate.der().clone()], key).await
        };
        let config = |front: &Front, trusted: &rcgen::Certificate| {
            let cluster = json!({
                "server": format!("https://{}", front.address),
                "certificate-authority-data": STANDARD.encode(trusted.pem()),
            });
            Bench::config(&cluster, &json!({"token": bench.token()}))
        };
        let (own, plain, late) =
            (own.self_signed(&key)?, names()?.self_signed(&key)?, late.self_signed(&key)?);
        for (name, certificate, trusted) in [
            ("its own authority", &own, &own),
            ("self-signed", &plain, &plain),
            ("a pinned certificate", &signed, &signed),
            ("an authority", &signed, issuer.as_ref()),
        ] {
            let front = serve(certificate).await?;
            bench.accepted([Case::new(name, config(&front, trusted))]).await?;
        }
        for (name, certificate, trusted, words) in [
            ("unknown", &signed, &plain, "is not signed by the authority in the kubeconfig"),
            ("expired", &late, &late, "its certificate has expired"),
            (
                "of another name",
                &other,
                &other,
                "its certificate is for elsewhere.invalid, and not for 127.0.0.1",
            ),
        ] {
            let front = serve(certificate).await?;
            bench.refused(Case::new(name, config(&front, trusted)), [words]).await?;
        }
        // A server with a key of P-521 has no algorithm in common with this program.
        let alert = Front::saying(&[21, 3, 3, 0, 2, 2, 40]).await?;
        bench
            .refused(
                Case::new("no common algorithm", config(&alert, &own)),
                ["its certificate needs a key of P-256, P-384, Ed25519 or RSA with 2048 bits or more, and no P-521"],
            )
            .await?;
        let mut user = bench.user();
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{P521}\n-----END PRIVATE KEY-----\n");
        user["client-key-data"] = STANDARD.encode(pem).into();
        bench
            .refused(
                Case::new("a client key of P-521", Bench::config(&bench.cluster(), &user)),
                ["the client key of the user can't be used: it must be P-256"],
            )
            .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_can_not_be_used_is_one_sentence() -> Result<()> {
    on_a_bench(async |bench| {
        let at = |server: String| bench.config_with(&json!({"server": server}));
        let closed = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        bench
            .refused(
                Case::new("closed", at(format!("https://{closed}"))),
                ["can't reach the API server", "connections are refused"],
            )
            .await?;
        let silent = Front::silent().await?;
        bench
            .refused(
                Case::new("silent", at(format!("https://{}", silent.address))).flags(&["--request-timeout=1s"]),
                ["can't reach the API server", "it does not answer"],
            )
            .await?;
        let web = Front::saying(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>").await?;
        bench
            .refused(
                Case::new("a web server", at(format!("http://{}", web.address))),
                ["this is no API server of Kubernetes"],
            )
            .await?;
        bench
            .refused(Case::new("without TLS", at(format!("https://{}", web.address))), ["it does not speak TLS"])
            .await?;
        bench
            .refused(
                Case::new("a wrong token", Bench::config(&bench.cluster(), &json!({"token": "wrong"}))),
                ["the server does not accept your credentials (401)"],
            )
            .await?;
        bench
            .refused(
                Case::new("without rights", bench.config_with(&json!({}))).flags(&["--as", "somebody"]),
                [
                    "you have no right to list nodes, list ciliumnodes, list nodeippools, list nodeipblocks, list \
                     configmaps in kube-system, list pods in kube-system",
                    "the ClusterRole `view` has these rights",
                ],
            )
            .await
    })
    .await
}

/// All commands that look at a cluster use the same access.
#[tokio::test(flavor = "multi_thread")]
async fn every_command_takes_the_same_access() -> Result<()> {
    on_a_bench(async |bench| {
        bench.write("pool.yaml", POOL)?;
        let proxy = Front::socks(bench.address).await?;
        let by_proxy = bench.config_with(&json!({"proxy-url": format!("socks5://{}", proxy.address)}));
        let case = Case::new("all", by_proxy);
        for arguments in [
            &["status"][..],
            &["preflight"],
            &["check"],
            &["why", "node/n1"],
            &["who", "nib/10.9.0.0-26", "10.9.0.1"],
            &["routes"],
            &["plan"],
            &["plan", "-f", "pool.yaml"],
            &["map", "-o", "map.html"],
            &["bundle", "-o", "bundle.tar.gz"],
            &["cordon", "nip/a", "--yes"],
            &["uncordon", "nodeippool.nodeipam.io/a", "--yes"],
            &["freeze", "--yes"],
            &["unfreeze", "--yes"],
        ] {
            let accepted = proxy.accepted();
            let said = bench.run(OURS, &case, arguments).await?;
            ensure!(matches!(said.code, Some(0 | 1)), "{arguments:?}: {}", said.errors);
            ensure!(proxy.accepted() > accepted, "{arguments:?} used no proxy");
        }
        documented("version", &bench.run(OURS, &case, &["version"]).await?)?;
        let completer = bench.path("kubectl_complete-nodeipam");
        std::os::unix::fs::symlink(OURS, &completer)?;
        for (words, names) in [(["why", ""], "n1\n:4\n"), (["cordon", ""], "a\n:4\n")] {
            let said = bench.run(&completer, &case, &words).await?;
            ensure!(said.text == names, "{words:?}: {}{}", said.text, said.errors);
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_installation_a_command_says_so_and_a_plan_works() -> Result<()> {
    let bare = Options { crds: Vec::new(), manifests: Vec::new(), ..Options::default() };
    let plane = ControlPlane::start(bare).await?;
    let bench = Bench::new(&plane)?;
    bench.write("pool.yaml", POOL)?;
    let case = Case::new("bare", bench.config_with(&json!({})));
    for arguments in [&["status"][..], &["plan"], &["map", "-o", "map.svg"], &["why", "n1"]] {
        let said = bench.run(OURS, &case, arguments).await?;
        let errors = &said.errors;
        ensure!(said.code == Some(2) && errors.trim().lines().count() == 1, "{arguments:?}: {errors}");
        ensure!(
            errors.contains("cilium-node-ipam is not installed in this cluster"),
            "{arguments:?}: {errors}"
        );
    }
    let planned = bench.run(OURS, &case, &["plan", "-f", "pool.yaml"]).await?;
    ensure!(matches!(planned.code, Some(0 | 1)), "{}", planned.errors);
    planned.assert_lines(&["a - -> Ready - -> 0 - -> 0/1024 - -> 1024 - -> 0/0"])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pipe_is_no_error() -> Result<()> {
    on_a_bench(async |bench| {
        let kubeconfig = bench.write("config", bench.config_with(&json!({})).to_string())?;
        for arguments in
            [&["status"][..], &["status", "--watch"], &["crd"], &["man"], &["completion", "bash"]]
        {
            let (reader, writer) = std::io::pipe()?;
            drop(reader);
            let mut command = Command::new(OURS);
            command.args(arguments).env("KUBECONFIG", &kubeconfig).stdout(writer).stderr(Stdio::piped());
            let child = command.stdin(Stdio::null()).kill_on_drop(true).spawn()?;
            drop(command);
            let output = child.wait_with_output().await.context("the command runs")?;
            ensure!(
                output.stderr.is_empty() && matches!(output.status.code(), Some(0 | 1)),
                "{arguments:?}: {output:?}"
            );
        }
        Ok(())
    })
    .await
}
