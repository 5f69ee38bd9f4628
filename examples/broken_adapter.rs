//! Runs an adapter with one chosen fault, to see what `weir doctor` or another checker says of it.
//!
//!     ADAPTER_TOKEN=… cargo run --example broken_adapter -- NAME [PORT]
//!
//! Without a port it takes any free one. Without a name it prints all names: each with `agrees` or `stricter` (whether the app
//! maker's checker asks for that rule as well), the findings of `weir doctor --deep` that fail, and what the variant does.

#[path = "../tests/broken_adapters/mod.rs"]
mod broken_adapters;

use broken_adapters::{BrokenAdapter, VARIANTS};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(name) = arguments.next() else {
        for variant in VARIANTS {
            let scope = if variant.is_checked_elsewhere { "agrees" } else { "stricter" };
            let fails = if variant.fails.is_empty() { "-".to_owned() } else { variant.fails.join(" ") };
            println!("{}\t{scope}\t{fails}\t{}", variant.name, variant.what);
        }
        return ExitCode::SUCCESS;
    };
    let variant = VARIANTS.iter().find(|variant| variant.name == name);
    let port = arguments.next().map_or(Ok(0), |port| port.parse());
    let (Some(variant), Ok(port), Ok(token)) = (variant, port, std::env::var("ADAPTER_TOKEN")) else {
        eprintln!("usage: ADAPTER_TOKEN=… broken_adapter [NAME [PORT]]; without a name it prints all names");
        return ExitCode::from(2);
    };
    match BrokenAdapter::start(variant.fault, &token, port) {
        Ok(adapter) => println!("listening on http://{}", adapter.address()),
        Err(error) => {
            eprintln!("127.0.0.1:{port} can't be opened: {}", error.kind());
            return ExitCode::FAILURE;
        }
    }
    loop {
        std::thread::park();
    }
}
