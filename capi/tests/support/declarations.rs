//! The functions of the header, as C declares them.
#![allow(dead_code)]

/// A parameter: its type without spaces around stars, and its name.
#[derive(Debug, Clone)]
pub struct Parameter {
    pub ty: String,
    pub name: String,
}

impl Parameter {
    pub fn is_pointer(&self) -> bool {
        self.ty.ends_with('*')
    }

    /// The object of Rejoin that it points to.
    pub fn object(&self) -> Option<&str> {
        let ty = self.ty.strip_prefix("const ").unwrap_or(&self.ty);
        let name = ty.strip_prefix("struct ")?.strip_suffix('*')?;
        (!name.ends_with('*') && !is_plain(name)).then_some(name)
    }
}

fn is_plain(name: &str) -> bool {
    name.ends_with("_options")
        || name.ends_with("_info")
        || name.ends_with("_report")
        || matches!(
            name,
            "rejoin_record"
                | "rejoin_record_ref"
                | "rejoin_unique_id"
                | "rejoin_comm_config"
                | "rejoin_failed_rank"
                | "rejoin_handle_entry"
                | "rejoin_lane"
                | "rejoin_obstacle"
                | "rejoin_part"
        )
}

/// A function that returns a status.
#[derive(Debug, Clone)]
pub struct Function {
    pub returns: String,
    pub name: String,
    pub parameters: Vec<Parameter>,
}

impl Function {
    /// In one line, with one way of writing everything.
    pub fn text(&self) -> String {
        let parameters: Vec<String> = self.parameters.iter().map(|p| format!("{} {}", p.ty, p.name)).collect();
        format!("{} {}({})", self.returns, self.name, parameters.join(", "))
    }
}

pub fn functions(header: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for start in ["\nrejoin_status ", "\nconst char *"] {
        for (at, _) in header.match_indices(start) {
            let rest = &header[at + start.len()..];
            let Some((declaration, _)) = rest.split_once(");\n") else { continue };
            let Some((name, parameters)) = declaration.split_once('(') else { continue };
            if !name.starts_with("rejoin_") || name.contains(' ') {
                continue;
            }
            let parameters = parameters.split(',').map(str::trim).filter(|text| *text != "void" && !text.is_empty());
            found.push(Function { returns: start.trim().to_owned(), name: name.to_owned(), parameters: parameters.map(parameter).collect() });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn parameter(text: &str) -> Parameter {
    let at = text.rfind([' ', '*']).expect("a type and a name");
    let ty: String = text[..=at].split_whitespace().collect::<Vec<_>>().join(" ");
    Parameter { ty: ty.replace(" *", "*"), name: text[at + 1..].to_owned() }
}
