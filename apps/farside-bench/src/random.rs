//! Random numbers that are the same every time.

/// Marsaglia's xorshift with a state of 64 bits, which is not 0.
#[derive(Clone, Debug)]
pub(crate) struct Xorshift(pub(crate) u64);

impl Xorshift {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `end`, which is less than 2³².
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (((self.next() >> 32) * end as u64) >> 32) as usize
    }
}

/// Splitmix, whose numbers differ by seed from the first on.
#[derive(Clone, Debug)]
pub(crate) struct Splitmix(u64);

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Splitmix {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(STEP))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        self.mixed()
    }

    /// Returns the mixed bits of the state.
    pub(crate) fn mixed(&self) -> u64 {
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }
}
