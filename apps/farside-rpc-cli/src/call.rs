//! `farside rpc call`: any procedure, with JSON for its arguments and its result.

use std::io::Write;

use farside_rpc::server::Description;
use farside_rpc::{CallError, Encoded, bulk};
use serde_json::{Value, json};

use crate::error::{RpcError, failed};
use crate::json::{Encoded as Arguments, Fault, Type, Types};
use crate::server::ServerArguments;

/// Calls `name`, which is `service/procedure` or `service/provider/procedure`, and prints what
/// arrives.
pub(super) fn call(server: &ServerArguments, name: &str, arguments: &str) -> Result<(), RpcError> {
    let arguments: Value = serde_json::from_str(arguments).map_err(|error| {
        RpcError::Arguments(format!("the arguments are not JSON: {error}; quote them for the shell"))
    })?;
    let client = server.connect()?;
    let services = client.describe().map_err(failed)?;
    let (service, procedure, shape) = find(&services, name)?;
    let types = Types::parse(shape).map_err(|fault| RpcError::Rpc(format!("{name}: {fault}")))?;
    let mut encoded = Arguments::default();
    let wrong = |fault: Fault| RpcError::Arguments(fault.at("arguments").to_string());
    types.arguments.encode(&arguments, &mut encoded).map_err(wrong)?;
    let Arguments { bytes, mut memory, .. } = encoded;
    let procedure = client.encoded_procedure(&service.service, service.provider, procedure, shape);
    let answer = bulk::scope(|scope| {
        let encoded = memory.iter_mut().fold(Encoded::new(bytes), |encoded, memory| match memory.file {
            None => encoded.with(&scope.lend(&memory.bytes)),
            Some(_) => encoded.with(&scope.lend_mut(&mut memory.bytes)),
        });
        // The memory is lent until the stream of the result ends.
        procedure.call(&encoded).map(|result| Printer { server, name }.print(&types.result, result))
    });
    match answer {
        Ok(printed) => printed?,
        Err(CallError::Service(error)) => {
            let error = types.error.decode(error.bytes()).map_err(undecodable("error"))?;
            return Err(RpcError::Service(json!({ "error": error }).to_string()));
        }
        Err(error) => return Err(failed(error)),
    }
    for memory in &memory {
        if let Some(path) = &memory.file {
            let written = std::fs::write(path, &memory.bytes);
            written.map_err(|cause| RpcError::MemoryFile { path: path.clone(), cause })?;
        }
    }
    Ok(())
}

fn undecodable(what: &str) -> impl Fn(Fault) -> RpcError {
    move |fault| RpcError::Rpc(fault.at(what).to_string())
}

/// Prints a result, and then the items of its stream as they arrive.
struct Printer<'a> {
    server: &'a ServerArguments,
    name: &'a str,
}

impl Printer<'_> {
    fn print(&self, ty: &Type, result: Encoded) -> Result<(), RpcError> {
        let value = ty.decode(result.bytes()).map_err(undecodable("result"))?;
        // A stream alone has nothing before its items.
        if !matches!(ty, Type::Stream(_)) {
            self.line("result", value)?;
        }
        let Some(items) = ty.items() else { return Ok(()) };
        for arrived in result.into_items().into_iter().flatten() {
            let (count, bytes) = arrived.map_err(failed)?;
            let values = items.decode_each(count, &bytes).map_err(undecodable("item"))?;
            values.into_iter().try_for_each(|value| self.line("item", value))?;
        }
        Ok(())
    }

    fn line(&self, what: &str, value: Value) -> Result<(), RpcError> {
        let (address, procedure) = (self.server.address(), self.name);
        let line = match self.server.is_json() {
            true => json!({ "address": address, "procedure": procedure, what: value }),
            false => value,
        };
        writeln!(std::io::stdout(), "{line}").map_err(RpcError::Output)
    }
}

/// The service, the procedure and its types.
fn find<'a>(services: &'a [Description], name: &str) -> Result<(&'a Description, &'a str, &'a str), RpcError> {
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
        RpcError::Rpc(format!("the server has no {name}; it has: {}", known.join(", ")))
    })
}
