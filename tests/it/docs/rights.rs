//! The tables of rights and ports are those of the chart: of the committed files that it renders, which
//! `install::rendered` compares with the chart.
//!
//! The file with every value set has every right and port. The files with one value each say which value adds it. The
//! purpose is the comment above a right or a port in the chart.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::generated::{cell, compare};

const RENDERED: &str = "tests/it/install/rendered";
const DEFAULT: &str = "manifests/install.yaml";

/// The value that is on by default, in a file without it.
const TURNED_OFF: (&str, &str) = ("without-election", "`leaderElection.enabled`, on by default");

/// The files with one value each. A right of several files is that of the first one.
const ADDED: [(&str, &str); 8] = [
    ("create-ciliumnodes", "`createCiliumNodes`"),
    ("kubernetes-rights", "`modes` with `kubernetes`"),
    ("multi-pool", "`modes` with `multi-pool`"),
    ("create-podippools", "`createPodIPPools`"),
    ("node-condition", "`nodeCondition`"),
    ("gobgp", "`routes.exporter`"),
    ("routes", "`routes.exporter` with `routes.template`"),
    ("metrics-port", "`metricsPort.enabled`"),
];

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The output of the chart with the values of a file.
struct Rendered {
    /// Each object, with its text.
    objects: Vec<(Value, String)>,
    /// The start of the names of its objects.
    name: String,
}

impl Rendered {
    fn of(path: &str) -> Self {
        let text = read(path);
        let objects: Vec<(Value, String)> = text
            .split("\n---\n")
            .map(|text| (serde_saphyr::from_str(text).expect("it is YAML"), text.to_owned()))
            .filter(|(object, _): &(Value, String)| object.is_object())
            .collect();
        let name =
            text_of(&of_kind(&objects, "Deployment").next().expect("there is one").0["metadata"]["name"]);
        Self { objects, name }
    }

    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &(Value, String)> {
        of_kind(&self.objects, kind)
    }

    /// The name of an object in an installation with the usual name.
    fn usual(&self, object: &Value) -> String {
        let name = text_of(&object["metadata"]["name"]);
        let rest = name.strip_prefix(&self.name).unwrap_or_else(|| panic!("{name} has another name"));
        format!("cilium-node-ipam{rest}")
    }

    /// The roles; those of the whole cluster first.
    fn roles(&self) -> Vec<Role> {
        let roles = self.of_kind("ClusterRole").chain(self.of_kind("Role"));
        roles.map(|(role, text)| Role::of(role, text, self.usual(role))).collect()
    }

    fn deployment(&self) -> &(Value, String) {
        self.of_kind("Deployment").next().expect("there is one")
    }

    /// Whether an account has the role.
    fn is_bound(&self, role: &Role, account: &Value) -> bool {
        let mut bindings = self.of_kind("ClusterRoleBinding").chain(self.of_kind("RoleBinding"));
        bindings.any(|(binding, _)| {
            let of = &binding["roleRef"];
            let subjects = list(&binding["subjects"]);
            (of["kind"] == role.kind && of["name"] == role.name)
                && subjects.iter().any(|subject| subject["name"] == *account)
        })
    }

    /// Each port of the Pod and of Services, with the object that has it.
    fn ports(&self) -> Vec<Port> {
        let (deployment, text) = self.deployment();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let arguments: Vec<String> = list(&container["args"]).iter().map(text_of).collect();
        let of_pod = list(&container["ports"]).iter().zip(comments(text, "ports:")).map(|(port, purpose)| {
            let number = port["containerPort"].as_u64().expect("a number");
            let end = format!(":{number}");
            let listens = arguments.iter().filter_map(|argument| Some(argument.split_once("listen=")?.1));
            let mut hosts = listens.filter_map(|address| address.strip_suffix(&*end));
            let host = match hosts.next().unwrap_or_else(|| panic!("no argument for {number}")) {
                "" => "all addresses",
                "127.0.0.1" => "127.0.0.1",
                other => panic!("{other} has no words"),
            };
            let place = format!("{host} of each replica's node");
            Port { object: "Pod".to_owned(), name: text_of(&port["name"]), number, place, purpose }
        });
        let of_services = self.of_kind("Service").flat_map(|(service, text)| {
            assert_eq!(service["spec"]["clusterIP"], "None", "it has an address, and no words");
            list(&service["spec"]["ports"]).iter().zip(comments(text, "ports:")).map(|(port, purpose)| Port {
                object: format!("Service `{}`", self.usual(service)),
                name: text_of(&port["name"]),
                number: port["port"].as_u64().expect("a number"),
                place: format!("headless: port `{}` of the Pods", text_of(&port["targetPort"])),
                purpose,
            })
        });
        of_pod.chain(of_services).collect()
    }
}

fn of_kind<'a>(objects: &'a [(Value, String)], kind: &str) -> impl Iterator<Item = &'a (Value, String)> {
    objects.iter().filter(move |(object, _)| object["kind"] == kind)
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn words(value: &Value) -> Vec<String> {
    list(value).iter().map(text_of).collect()
}

/// The comment above each item of the list below a line, as one text. An item without a comment has an empty one.
fn comments(text: &str, line: &str) -> Vec<String> {
    let mut lines = text.lines().skip_while(|text| text.trim() != line);
    let first = lines.next().unwrap_or_else(|| panic!("no {line}\n{text}"));
    let indent = first.len() - first.trim_start().len();
    let (comment, item) = (format!("{}# ", " ".repeat(indent + 2)), format!("{}- ", " ".repeat(indent + 2)));
    let (mut found, mut pending) = (Vec::new(), Vec::new());
    for line in lines.take_while(|line| line.len() - line.trim_start().len() > indent) {
        if let Some(comment) = line.strip_prefix(&comment) {
            pending.push(comment);
        } else if line.starts_with(&item) {
            found.push(pending.join(" "));
            pending.clear();
        }
    }
    found
}

/// The comment above an object.
fn head(text: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with("# Source:")).skip(1);
    let head = lines.take_while(|line| line.starts_with("# ")).map(|line| &line[2..]);
    head.collect::<Vec<_>>().join(" ")
}

struct Role {
    kind: String,
    name: String,
    usual_name: String,
    namespace: Option<String>,
    head: String,
    rules: Vec<Rule>,
}

impl Role {
    fn of(role: &Value, text: &str, usual_name: String) -> Self {
        let (rules, comments) = (list(&role["rules"]), comments(text, "rules:"));
        assert_eq!(rules.len(), comments.len(), "{usual_name}");
        let rules = rules.iter().zip(comments).map(|(rule, purpose)| Rule {
            groups: words(&rule["apiGroups"]),
            resources: words(&rule["resources"]),
            names: words(&rule["resourceNames"]),
            paths: words(&rule["nonResourceURLs"]),
            verbs: words(&rule["verbs"]),
            purpose,
        });
        Self {
            kind: text_of(&role["kind"]),
            name: text_of(&role["metadata"]["name"]),
            namespace: role["metadata"]["namespace"].as_str().map(str::to_owned),
            head: head(text),
            rules: rules.collect(),
            usual_name,
        }
    }

    /// Each right of a rule, as one line.
    fn rights(&self, rule: &Rule) -> BTreeSet<String> {
        let mut rights = BTreeSet::new();
        let names = if rule.names.is_empty() { vec![String::new()] } else { rule.names.clone() };
        let of = format!("{} {}", self.kind, self.usual_name);
        for verb in &rule.verbs {
            for name in &names {
                for group in &rule.groups {
                    for resource in &rule.resources {
                        rights.insert(format!("{of}: {verb} {resource}.{group} {name}"));
                    }
                }
            }
            rights.extend(rule.paths.iter().map(|path| format!("{of}: {verb} {path}")));
        }
        rights
    }
}

struct Rule {
    groups: Vec<String>,
    resources: Vec<String>,
    names: Vec<String>,
    paths: Vec<String>,
    verbs: Vec<String>,
    purpose: String,
}

struct Port {
    object: String,
    name: String,
    number: u64,
    place: String,
    purpose: String,
}

impl Port {
    fn is_same(&self, other: &Self) -> bool {
        (&self.object, &self.name) == (&other.object, &other.name)
    }
}

/// Which values of the chart add something. Each file is read by `all`.
struct Files<T> {
    default: T,
    turned_off: T,
    added: Vec<(T, &'static str)>,
}

impl<T> Files<T> {
    fn read(all: impl Fn(&Rendered) -> T) -> Self {
        let of = |name: &str| all(&Rendered::of(&format!("{RENDERED}/{name}.yaml")));
        Self {
            default: all(&Rendered::of(DEFAULT)),
            turned_off: of(TURNED_OFF.0),
            added: ADDED.map(|(name, value)| (of(name), value)).into(),
        }
    }

    /// The values that a thing needs, if a file has it.
    fn values(&self, has_it: impl Fn(&T) -> bool) -> Option<&'static str> {
        if has_it(&self.default) {
            return Some(if has_it(&self.turned_off) { "always" } else { TURNED_OFF.1 });
        }
        self.added.iter().find(|(file, _)| has_it(file)).map(|(_, value)| *value)
    }
}

fn rights(rendered: &Rendered) -> BTreeSet<String> {
    let roles = rendered.roles();
    roles.iter().flat_map(|role| role.rules.iter().flat_map(|rule| role.rights(rule))).collect()
}

/// The names of resources and objects in a cell.
fn code(words: &[String]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// The section of a role. Rights of users have no purpose of their own.
fn section(role: &Role, place: &str, files: &Files<BTreeSet<String>>, is_ours: bool) -> String {
    let mut text = format!("### {} {}\n\n{place} {}\n\n", role.kind, role.usual_name, role.head);
    text = text.replace(" \n", "\n");
    text += "| API group | resource | names | verbs | with |";
    text += if is_ours { " purpose |\n|---|---|---|---|---|---|\n" } else { "\n|---|---|---|---|---|\n" };
    for rule in &role.rules {
        let rights = role.rights(rule);
        let values = files.values(|file| rights.is_subset(file));
        let values = values.unwrap_or_else(|| panic!("no file with one value has {rights:?}"));
        assert_eq!(!rule.purpose.is_empty(), is_ours, "a right of the controller has a purpose: {rights:?}");
        let groups: Vec<&str> =
            rule.groups.iter().map(|group| if group.is_empty() { "core" } else { group }).collect();
        let names = if rule.names.is_empty() { "all".to_owned() } else { code(&rule.names) };
        let _ = write!(
            text,
            "| {} | {}{} | {names} | {} | {values} |",
            groups.join(", "),
            code(&rule.resources),
            code(&rule.paths),
            rule.verbs.join(", "),
        );
        let _ = if is_ours { writeln!(text, " {} |", cell(&rule.purpose)) } else { writeln!(text) };
    }
    text
}

#[test]
fn the_tables_have_every_right_of_the_chart() {
    let files = Files::read(rights);
    let everything = Rendered::of(&format!("{RENDERED}/everything.yaml"));
    let values: Value =
        serde_saphyr::from_str(&read(&format!("{RENDERED}/everything.values.yaml"))).expect("it is YAML");
    let (deployment, _) = everything.deployment();
    let account = &deployment["spec"]["template"]["spec"]["serviceAccountName"];
    let of_routes = text_of(&values["routes"]["template"]);
    let (of_routes, _) = of_routes.split_once('/').expect("NAMESPACE/NAME");
    let place = |role: &Role| match role.namespace.as_deref() {
        None => "In every namespace.".to_owned(),
        Some(name) if values["ciliumNamespace"] == name => {
            "In the namespace of `ciliumNamespace`.".to_owned()
        }
        Some(name) if deployment["metadata"]["namespace"] == name => {
            "In the namespace of the release.".to_owned()
        }
        Some(name) if name == of_routes => "In the namespace of `routes.template`.".to_owned(),
        Some(name) => format!("In the namespace `{name}`."),
    };
    let (ours, of_users): (Vec<Role>, Vec<Role>) =
        everything.roles().into_iter().partition(|role| everything.is_bound(role, account));
    for (mark, roles, is_ours) in [("rights", ours, true), ("rights of users", of_users, false)] {
        let sections: Vec<_> =
            roles.iter().map(|role| section(role, &place(role), &files, is_ours)).collect();
        compare("docs/reference/rights.md", mark, &sections.join("\n"));
    }
}

/// The value of the chart that has this number.
fn value_of(values: &Value, path: &str, number: u64) -> Option<String> {
    let entries = values.as_object()?.iter();
    let mut found = entries.filter_map(|(key, value)| {
        let path = format!("{path}{key}");
        if value.as_u64() == Some(number) { Some(path) } else { value_of(value, &format!("{path}."), number) }
    });
    found.next()
}

#[test]
fn the_table_has_every_port_of_the_chart() {
    let files = Files::read(Rendered::ports);
    let everything = Rendered::of(&format!("{RENDERED}/everything.yaml"));
    let values: Value =
        serde_saphyr::from_str(&read(&format!("{RENDERED}/everything.values.yaml"))).expect("it is YAML");
    let security = read("docs/security.md");
    let mut table =
        "| port | of | address | value | with | purpose |\n|---|---|---|---|---|---|\n".to_owned();
    for port in everything.ports() {
        let all =
            [&files.default, &files.turned_off].into_iter().chain(files.added.iter().map(|(file, _)| file));
        let usual = all.flatten().find(|other| other.is_same(&port)).map(|other| other.number);
        let usual =
            usual.unwrap_or_else(|| panic!("no file with one value has {} {}", port.object, port.name));
        let with = files.values(|file| file.iter().any(|other| other.is_same(&port))).expect("it was found");
        let value =
            value_of(&values, "", port.number).unwrap_or_else(|| panic!("no value is {}", port.number));
        assert!(!port.purpose.is_empty(), "{} has no purpose", port.name);
        assert!(security.contains(&format!("\n| {usual} ")), "docs/security.md lacks the port {usual}");
        let Port { object, name, place, purpose, .. } = port;
        let _ = writeln!(
            table,
            "| {usual} `{name}` | {object} | {place} | `{value}` | {with} | {} |",
            cell(&purpose)
        );
    }
    compare("docs/reference/rights.md", "ports", &table);
}

/// The page says so.
#[test]
fn pods_are_on_the_host_network_and_no_policy_of_the_chart_binds_them() {
    for path in [DEFAULT.to_owned(), format!("{RENDERED}/everything.yaml")] {
        let rendered = Rendered::of(&path);
        let pod = &rendered.deployment().0["spec"]["template"]["spec"];
        assert_eq!(pod["hostNetwork"], true, "{path}");
        for kind in ["NetworkPolicy", "CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy", "Ingress"] {
            assert_eq!(rendered.of_kind(kind).count(), 0, "{path}: {kind}");
        }
    }
    let said = "No value of the chart changes `hostNetwork: true`, and the chart has no NetworkPolicy.";
    assert!(read("docs/reference/rights.md").contains(said));
}
