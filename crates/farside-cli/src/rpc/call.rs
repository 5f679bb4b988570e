//! `farside rpc call`: any procedure, with JSON for its arguments and its result.

use farside_rpc::server::Description;
use farside_rpc::{CallError, Encoded, bulk};
use serde_json::{Value, json};

use super::json::{Encoded as Arguments, Fault, Types};
use super::{ServerArguments, failed};
use crate::error::CliError;

/// Calls `name`, which is `service/procedure` or `service/provider/procedure`.
pub(super) fn call(server: &ServerArguments, name: &str, arguments: &str) -> Result<String, CliError> {
    let arguments: Value = serde_json::from_str(arguments).map_err(|error| {
        CliError::Arguments(format!("the arguments are not JSON: {error}; quote them for the shell"))
    })?;
    let client = server.connect()?;
    let services = client.describe().map_err(failed)?;
    let (service, procedure, shape) = find(&services, name)?;
    let types = Types::parse(shape).map_err(|fault| CliError::Rpc(format!("{name}: {fault}")))?;
    let mut encoded = Arguments::default();
    let wrong = |fault: Fault| CliError::Arguments(fault.at("arguments").to_string());
    types.arguments.encode(&arguments, &mut encoded).map_err(wrong)?;
    let Arguments { bytes, mut memory } = encoded;
    let procedure = client.encoded_procedure(&service.service, service.provider, procedure, shape);
    let answer = bulk::scope(|scope| {
        let encoded = memory.iter_mut().fold(Encoded::new(bytes), |encoded, memory| match memory.file {
            None => encoded.with(&scope.lend(&memory.bytes)),
            Some(_) => encoded.with(&scope.lend_mut(&mut memory.bytes)),
        });
        procedure.call(&encoded)
    });
    let undecodable = |what| move |fault: Fault| CliError::Rpc(fault.at(what).to_string());
    let result = match answer {
        Ok(result) => types.result.decode(result.bytes()).map_err(undecodable("result"))?,
        Err(CallError::Service(error)) => {
            let error = types.error.decode(error.bytes()).map_err(undecodable("error"))?;
            return Err(CliError::Service(json!({ "error": error }).to_string()));
        }
        Err(error) => return Err(failed(error)),
    };
    for memory in &memory {
        if let Some(path) = &memory.file {
            let written = std::fs::write(path, &memory.bytes);
            written.map_err(|cause| CliError::MemoryFile { path: path.clone(), cause })?;
        }
    }
    Ok(match server.json {
        true => format!("{}\n", json!({ "address": server.address, "procedure": name, "result": result })),
        false => format!("{result}\n"),
    })
}

/// The service, the procedure and its types.
fn find<'a>(services: &'a [Description], name: &str) -> Result<(&'a Description, &'a str, &'a str), CliError> {
    let all =
        || services.iter().flat_map(|service| service.procedures.iter().map(move |procedure| (service, procedure)));
    let full = |service: &Description, procedure: &str| format!("{}/{}/{procedure}", service.service, service.provider);
    let is_meant = |service: &Description, procedure: &str| {
        name == full(service, procedure)
            || (service.provider == 0 && name == format!("{}/{procedure}", service.service))
    };
    let found = all().find(|(service, (procedure, _))| is_meant(service, procedure));
    let found = found.map(|(service, (procedure, shape))| (service, procedure.as_str(), shape.as_str()));
    found.ok_or_else(|| {
        let known: Vec<_> = all().map(|(service, (procedure, _))| full(service, procedure)).collect();
        CliError::Rpc(format!("the server has no {name}; it has: {}", known.join(", ")))
    })
}
