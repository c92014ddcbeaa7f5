//! Is a module image whole? The driver is given an address without a length and reads as far as the image says.

use crate::backend::{DeviceError, DeviceResult};

const ELF_MAGIC: &[u8] = b"\x7fELF";
const FATBIN_MAGIC: u32 = 0xBA55_ED50;
const ELF_SECTION_BYTES: u64 = 64;
const ELF_SEGMENT_BYTES: u64 = 56;
/// Types of sections with bytes in the file: program, symbols, strings, relocations with and without addend,
/// NVIDIA's info. NVIDIA has types of its own without bytes (shared, local, global memory).
const WITH_BYTES: [u32; 6] = [1, 2, 3, 4, 9, 0x7000_0000];

fn broken<T>(reason: impl Into<String>) -> DeviceResult<T> {
    Err(DeviceError::Module { reason: reason.into() })
}

fn number<const N: usize>(image: &[u8], at: u64) -> Option<[u8; N]> {
    let at = usize::try_from(at).ok()?;
    image.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(image: &[u8], at: u64) -> Option<u64> {
    number(image, at).map(|bytes| u64::from(u16::from_le_bytes(bytes)))
}

fn u32_at(image: &[u8], at: u64) -> Option<u32> {
    number(image, at).map(u32::from_le_bytes)
}

fn u64_at(image: &[u8], at: u64) -> Option<u64> {
    number(image, at).map(u64::from_le_bytes)
}

/// The bytes to give to the driver, with a 0 at the end.
pub(super) fn prepare(image: &[u8]) -> DeviceResult<Vec<u8>> {
    if image.is_empty() {
        return broken("the image is empty; PTX, a cubin or a fatbin is expected");
    }
    if image.starts_with(ELF_MAGIC) {
        let found = image.len();
        match elf_end(image) {
            Some(end) if end <= found as u64 => {}
            Some(end) => return broken(format!("the cubin is cut short: {found} bytes of {end}")),
            None => return broken(format!("the cubin of {found} bytes is no whole 64-bit ELF file")),
        }
    } else if image.starts_with(&FATBIN_MAGIC.to_le_bytes()) {
        let end = u16_at(image, 6).zip(u64_at(image, 8)).and_then(|(header, body)| header.checked_add(body));
        if end.is_none_or(|end| end > image.len() as u64) {
            return broken(format!("the fatbin is cut short: {} bytes of {}", image.len(), end.map_or("more".into(), |end| end.to_string())));
        }
    } else {
        let text = image.strip_suffix(b"\0").unwrap_or(image);
        if text.contains(&0) || core::str::from_utf8(text).is_err() {
            return broken("the image is neither PTX text nor a cubin nor a fatbin");
        }
        if !text.windows(8).any(|word| word == b".version") {
            return broken("the image is text without a .version line, so it is no PTX");
        }
    }
    let mut bytes = Vec::with_capacity(image.len() + 1);
    bytes.extend_from_slice(image);
    bytes.push(0);
    Ok(bytes)
}

/// Where the last table, section or segment ends.
fn elf_end(image: &[u8]) -> Option<u64> {
    const CLASS_64: u8 = 2;
    const LITTLE_ENDIAN: u8 = 1;
    if image.get(4..6)? != [CLASS_64, LITTLE_ENDIAN] {
        return None;
    }
    let (segments, sections) = (u64_at(image, 32)?, u64_at(image, 40)?);
    let (segment_bytes, segment_count) = (u16_at(image, 54)?, u16_at(image, 56)?);
    let (section_bytes, section_count) = (u16_at(image, 58)?, u16_at(image, 60)?);
    if (segment_count > 0 && segment_bytes != ELF_SEGMENT_BYTES) || (section_count > 0 && section_bytes != ELF_SECTION_BYTES) {
        return None;
    }
    let tables = [(segments, segment_count * segment_bytes), (sections, section_count * section_bytes)];
    let mut end = 64;
    for (at, bytes) in tables {
        end = end.max(at.checked_add(bytes)?);
    }
    if end > image.len() as u64 {
        return Some(end);
    }
    for index in 0..segment_count {
        let header = segments + index * segment_bytes;
        end = end.max(u64_at(image, header + 8)?.checked_add(u64_at(image, header + 32)?)?);
    }
    for index in 0..section_count {
        let header = sections + index * section_bytes;
        if WITH_BYTES.contains(&u32_at(image, header + 4)?) {
            end = end.max(u64_at(image, header + 24)?.checked_add(u64_at(image, header + 32)?)?);
        }
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(image: &[u8]) -> String {
        match prepare(image) {
            Err(DeviceError::Module { reason }) => reason,
            other => panic!("{other:?}"),
        }
    }

    /// A header, one section header after it, one section of 10 bytes.
    fn elf() -> Vec<u8> {
        let mut image = vec![0; 64 + 64 + 10];
        image[..4].copy_from_slice(ELF_MAGIC);
        image[4..6].copy_from_slice(&[2, 1]);
        image[40..48].copy_from_slice(&64u64.to_le_bytes());
        image[58..60].copy_from_slice(&64u16.to_le_bytes());
        image[60..62].copy_from_slice(&1u16.to_le_bytes());
        image[64 + 4] = 1;
        image[64 + 24..64 + 32].copy_from_slice(&128u64.to_le_bytes());
        image[64 + 32..64 + 40].copy_from_slice(&10u64.to_le_bytes());
        image
    }

    #[test]
    fn whole_images_get_a_final_zero() {
        let ptx = b".version 8.0\n.target sm_90\n";
        for image in [&ptx[..], b".version 8.0\n\0", &elf()] {
            let prepared = prepare(image).unwrap();
            assert_eq!((&prepared[..image.len()], prepared[image.len()..].to_vec()), (image, vec![0]));
        }
        let mut fatbin = FATBIN_MAGIC.to_le_bytes().to_vec();
        fatbin.extend([1, 0, 16, 0, 3, 0, 0, 0, 0, 0, 0, 0, 7, 7, 7]);
        assert!(prepare(&fatbin).is_ok());
        fatbin.pop();
        assert!(reason(&fatbin).contains("18 bytes of 19"));
    }

    #[test]
    fn an_image_cut_at_any_byte_is_refused() {
        let whole = elf();
        for end in 0..whole.len() {
            reason(&whole[..end]);
        }
        assert!(reason(&whole[..whole.len() - 1]).contains("137 bytes of 138"));
    }

    #[test]
    fn numbers_that_overflow_are_refused() {
        for at in [32, 40, 64 + 24, 64 + 32] {
            let mut image = elf();
            image[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
            reason(&image);
        }
    }

    #[test]
    fn what_is_no_module_is_refused() {
        assert!(reason(b"").contains("empty"));
        assert!(reason(b"a text").contains(".version"));
        assert!(reason(&[0xff, 1, 2]).contains("neither"));
        assert!(reason(b"\x7fELF").contains("no whole"));
    }
}
