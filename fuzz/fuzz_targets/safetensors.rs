//! Any header of a safetensors file, before any number of bytes of data.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncline_checkpoint::Header;

fuzz_target!(|bytes: &[u8]| {
    let Some((data, text)) = bytes.split_first_chunk::<2>() else { return };
    let data = usize::from(u16::from_le_bytes(*data));
    let mut file = (text.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(text);
    file.resize(file.len() + data, 0);
    if let Ok(mut header) = Header::parse(&file) {
        assert!(header.tensors.iter().all(|of| of.start + of.bytes <= data as u64));
        let mut again = header.write();
        again.resize(header.file_bytes() as usize, 0);
        let mut read = Header::parse(&again).expect("a read form can be written");
        // Tensors of no bytes share their place with the next one.
        read.tensors.sort_by(|one, other| one.name.cmp(&other.name));
        header.tensors.sort_by(|one, other| one.name.cmp(&other.name));
        assert_eq!(read, header);
    }
    // The length before the header is not always right.
    let _ = Header::parse(bytes);
});
