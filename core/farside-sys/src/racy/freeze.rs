//! Turns uninitialised bytes into bytes with some fixed value, so that padding can be copied
//! through integers.

use std::mem::MaybeUninit;

macro_rules! freeze {
    ($($word:ident: $class:ident $register:literal),* $(,)?) => {$(
        /// Returns the same bits, with some fixed value in place of every uninitialised one. This
        /// costs no instruction.
        ///
        /// # Safety
        ///
        /// Under Miri, every byte is initialised.
        #[inline(always)]
        pub(super) unsafe fn $word(word: MaybeUninit<$word>) -> $word {
            #[cfg(not(miri))]
            {
                let frozen: $word;
                // SAFETY: no instruction runs. The compiler must assume that the output holds some
                // fixed value, so it holds one; where the input has a value, the output is the same
                // register.
                unsafe {
                    std::arch::asm!(
                        concat!("/* ", $register, " */"), word = inlateout($class) word => frozen,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
                frozen
            }
            #[cfg(miri)]
            // SAFETY: initialised, as the caller promises for this case.
            unsafe {
                word.assume_init()
            }
        }
    )*};
}

freeze! { u8: reg_byte "{word}", u16: reg "{word:r}", u32: reg "{word:r}", u64: reg "{word:r}" }
