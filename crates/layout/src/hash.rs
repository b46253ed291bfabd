//! Fingerprints, and a map that hashes with them.

use std::hash::{BuildHasherDefault, Hasher};

/// A map with keys that we made ourselves.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Fingerprint>>;

/// A hash that is the same on every machine and in every version.
///
/// It multiplies and folds 64-bit words, and resists no adversary.
#[derive(Clone, Debug, Default)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// Returns the hash of nothing, different for every seed.
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// Adds one word.
    pub fn word(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0xd6e8_feb8_6659_fd93_u128;
        // Adding the word keeps a product that became zero from swallowing what follows.
        self.0 = ((product >> 64) as u64 ^ product as u64).wrapping_add(word).rotate_left(23);
    }

    /// Adds a text, its length first: neighbouring texts cannot trade characters.
    pub fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        self.write(text.as_bytes());
    }

    /// Adds several words, their number first.
    pub fn words(&mut self, words: &[u64]) {
        self.word(words.len() as u64);
        for &word in words {
            self.word(word);
        }
    }

    /// Returns the fingerprint. Maps use the trait's `finish`, which skips the last two rounds.
    pub fn finish(mut self) -> u64 {
        self.word(0);
        self.word(0);
        self.0
    }
}

impl Hasher for Fingerprint {
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
            let mut hasher = Fingerprint::new(0);
            texts.iter().for_each(|text| hasher.text(text));
            hasher.finish()
        };
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&[""]), of(&[]));
        assert_eq!(of(&["layer"]), of(&["layer"]));
    }
}
