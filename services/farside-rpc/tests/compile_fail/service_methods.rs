//! Methods that are no procedures. All are reported at once.

use farside_rpc::{Call, Never};

#[farside_rpc::service(name = "a")]
trait Service {
    #[rpc(inline)]
    async fn asynchronous(&self, cx: &Call) -> Result<(), Never>;
    unsafe fn not_safe(&self, cx: &Call) -> Result<(), Never>;
    extern "C" fn foreign(&self, cx: &Call) -> Result<(), Never>;
    fn generic<T>(&self, cx: &Call, value: T) -> Result<(), Never>;
    fn borrowed<'a>(&'a self, cx: &'a Call) -> Result<(), Never>;
    fn anonymous(&self, cx: &Call, value: impl Copy) -> Result<(), Never>;
    fn with_clause(&self, cx: &Call) -> Result<(), Never> where Self: Sized;

    fn nothing() -> Result<(), Never>;
    fn without_self(cx: &Call) -> Result<(), Never>;
    fn exclusive(&mut self, cx: &Call) -> Result<(), Never>;
    fn by_value(self, cx: &Call) -> Result<(), Never>;

    fn without_call(&self) -> Result<(), Never>;
    fn other_first(&self, key: String, cx: &Call) -> Result<(), Never>;
    fn call_by_value(&self, cx: Call) -> Result<(), Never>;

    fn pattern(&self, cx: &Call, (a, b): (u8, u8)) -> Result<(), Never>;
    fn without_name(&self, cx: &Call, _: u8) -> Result<(), Never>;
    fn reference(&self, cx: &Call, key: &str) -> Result<(), Never>;
    fn too_many(
        &self, cx: &Call, a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8, h: u8, i: u8, j: u8, k: u8, l: u8, m: u8,
    ) -> Result<(), Never>;

    fn without_result(&self, cx: &Call);
    fn plain_result(&self, cx: &Call) -> u64;
    fn result_reference(&self, cx: &Call) -> Result<&'static str, Never>;
    fn alias(&self, cx: &Call) -> std::io::Result<()>;
    fn tuple(&self, cx: &Call) -> (u64, u64);
}

fn main() {}
