//! Fingerprints of layouts, plans and whatever a group agrees on.

use xxhash_rust::xxh3::Xxh3;

/// A hash that is the same on every machine: xxh3 over words and texts in little-endian order.
///
/// It resists no adversary.
#[derive(Clone)]
pub struct Fingerprint(Xxh3);

impl Fingerprint {
    /// Returns the hash of nothing, different for every seed.
    pub fn new(seed: u64) -> Self {
        Self(Xxh3::with_seed(seed))
    }

    /// Adds one word.
    pub fn word(&mut self, word: u64) {
        self.0.update(&word.to_le_bytes());
    }

    /// Adds a text, its length first: neighbouring texts cannot trade characters.
    pub fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    /// Adds several words, their number first.
    pub fn words(&mut self, words: &[u64]) {
        self.word(words.len() as u64);
        for &word in words {
            self.word(word);
        }
    }

    /// Returns the fingerprint.
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fingerprint({:016x})", self.finish())
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

    /// Groups agree on it between builds, and conversions that were interrupted know it again.
    #[test]
    fn values_do_not_change() {
        let mut hasher = Fingerprint::new(7);
        hasher.words(&[1, 2, 3]);
        hasher.text("layer");
        assert_eq!(format!("{:016x}", hasher.finish()), "62ed957a200c2337");
    }
}
