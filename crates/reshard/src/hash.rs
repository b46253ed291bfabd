//! A hash that is the same on every machine and in every version, for fingerprints; and a fast one
//! for maps.

use std::hash::{BuildHasherDefault, Hasher};

/// A map with keys that we made ourselves.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Hasher64>>;

/// Multiply-and-fold over 64-bit words. Not for keys from an adversary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hasher64(u64);

impl Hasher64 {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn word(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0xd6e8_feb8_6659_fd93_u128;
        // Adding the word keeps a product that became zero from swallowing what follows.
        self.0 = ((product >> 64) as u64 ^ product as u64).wrapping_add(word).rotate_left(23);
    }

    /// Length first, so that neighbouring texts cannot trade characters.
    pub(crate) fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        self.write(text.as_bytes());
    }

    pub(crate) fn words(&mut self, words: &[u64]) {
        self.word(words.len() as u64);
        for &word in words {
            self.word(word);
        }
    }

    /// The fingerprint. Maps use the trait's `finish`, which skips the last two rounds.
    pub(crate) fn finish(mut self) -> u64 {
        self.word(0);
        self.word(0);
        self.0
    }
}

impl Hasher for Hasher64 {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.word(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.word(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.word(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_between_texts_count() {
        let of = |texts: &[&str]| {
            let mut hasher = Hasher64::new(0);
            texts.iter().for_each(|text| hasher.text(text));
            hasher.finish()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&[""]), of(&[]));
        assert_eq!(of(&["layer"]), of(&["layer"]));
    }
}
