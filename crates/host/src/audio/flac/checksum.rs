//! The two checksums of a frame (RFC 9639, sections 9.1.8 and 9.3).

/// Bytes that CRC-16 takes at a time, each by a table of its own.
const STRIDE: usize = 16;

static CRC8: [u8; 256] = crc8_table();
/// `[n][byte]`: the checksum of a byte and `n` zeros behind it.
static CRC16: [[u16; 256]; STRIDE] = crc16_tables();

/// Of a frame's header: x⁸ + x² + x + 1.
pub fn crc8(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |crc, byte| CRC8[usize::from(crc ^ byte)])
}

/// Of a whole frame: x¹⁶ + x¹⁵ + x² + 1. Zero for bytes that end with their own checksum.
pub fn crc16(bytes: &[u8]) -> u16 {
    let (strides, rest) = bytes.as_chunks::<STRIDE>();
    let crc = strides.iter().fold(0u16, |crc, stride| {
        let mut stride = *stride;
        stride[0] ^= (crc >> 8) as u8;
        stride[1] ^= crc as u8;
        stride.iter().rev().zip(&CRC16).fold(0, |crc, (byte, table)| crc ^ table[usize::from(*byte)])
    });
    rest.iter().fold(crc, |crc, byte| (crc << 8) ^ CRC16[0][usize::from((crc >> 8) as u8 ^ byte)])
}

const fn crc8_table() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u8, 0);
        while bit < 8 {
            crc = if crc & 0x80 != 0 { (crc << 1) ^ 0x07 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

const fn crc16_tables() -> [[u16; 256]; STRIDE] {
    let mut tables = [[0; 256]; STRIDE];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut zeros) = ((byte as u16) << 8, 0);
        while zeros < STRIDE {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x8005 } else { crc << 1 };
                bit += 1;
            }
            tables[zeros][byte] = crc;
            zeros += 1;
        }
        byte += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Truth: the catalogue of parametrised CRC algorithms (reveng), CRC-8/SMBUS and CRC-16/UMTS.
    #[test]
    fn check_values() {
        assert_eq!((crc8(b"123456789"), crc16(b"123456789")), (0xf4, 0xfee8));
    }

    #[test]
    fn many_bytes_at_a_time_are_as_one_by_one() {
        let bytes: Vec<u8> = (0..200u32).map(|n| (n * n * 7 + n) as u8).collect();
        for len in 0..bytes.len() {
            let single =
                bytes[..len].iter().fold(0u16, |crc, byte| {
                    (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
                        if crc & 0x8000 != 0 { (crc << 1) ^ 0x8005 } else { crc << 1 }
                    })
                });
            assert_eq!(crc16(&bytes[..len]), single);
            let signed = [&bytes[..len], &single.to_be_bytes()].concat();
            assert_eq!(crc16(&signed), 0);
        }
    }
}
