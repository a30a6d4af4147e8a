package apikey

import (
	"encoding/hex"
	"hash/crc32"
	"math/big"
	"strings"
	"testing"
)

// known was computed by other means: 2^256 - 1 in base62, and zlib's CRC32 of all before it.
var known = map[Tier]string{
	Server: "svc_api_" + highest + "2JBQA4",
	Client: "svc_sdk_" + highest + "30tgNj",
}

const highest = "yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp1"

func TestEncodeReturnsKnownKeys(t *testing.T) {
	t.Parallel()
	var ones [32]byte
	for i := range ones {
		ones[i] = 0xff
	}
	for tier, expected := range known {
		if got := encode(tier, ones); got != expected {
			t.Errorf("%s: got %s, expected %s", tier, got, expected)
		}
	}
}

func TestSecretIsPaddedWithZeros(t *testing.T) {
	t.Parallel()
	raw := encode(Server, [32]byte{31: 61})
	if secret := raw[prefixLength:signedLength]; secret != strings.Repeat("0", 42)+"z" {
		t.Errorf("61 is written %s", secret)
	}
}

func TestNewKeysParseAndNeverRepeat(t *testing.T) {
	t.Parallel()
	for _, tier := range []Tier{Server, Client} {
		seen := make(map[string]bool)
		for range 1000 {
			raw := New(tier)
			if got, ok := Parse(raw); !ok || got != tier || len(raw) != 57 || !strings.HasPrefix(raw, Prefix(tier)) {
				t.Fatalf("%s: %s parses as %s, %v", tier, raw, got, ok)
			}
			if seen[raw] {
				t.Fatalf("%s came twice", raw)
			}
			seen[raw] = true
		}
	}
}

func TestSecretHolds256Bits(t *testing.T) {
	t.Parallel()
	highestBits := make(map[bool]int)
	for range 1000 {
		raw := New(Client)
		number := new(big.Int)
		for _, c := range raw[prefixLength:signedLength] {
			number.Mul(number, big.NewInt(62)).Add(number, big.NewInt(int64(strings.IndexRune(alphabet, c))))
		}
		if number.BitLen() > 256 {
			t.Fatalf("%s has %d bits", raw, number.BitLen())
		}
		highestBits[number.Bit(255) == 1]++
	}
	if highestBits[true] < 400 || highestBits[false] < 400 {
		t.Errorf("the highest bit of 1000 keys: %v", highestBits)
	}
}

func TestParseRejectsMalformedKeys(t *testing.T) {
	t.Parallel()
	good := known[Server]
	junk := map[string]string{
		"empty":               "",
		"prefix alone":        "svc_api_",
		"one short":           good[:len(good)-1],
		"one long":            good + "0",
		"space before":        " " + good[:len(good)-1],
		"other prefix":        "sk_live_" + good[8:],
		"upper-case prefix":   "SVC_API_" + good[8:],
		"other tier's prefix": clientPrefix + good[8:],
		"not base62":          good[:20] + "-" + good[21:],
		"not ASCII":           good[:20] + "é" + good[22:],
		"NUL":                 good[:20] + "\x00" + good[21:],
		"long":                strings.Repeat(good, 1000),
	}
	for name, raw := range junk {
		if tier, ok := Parse(raw); ok || tier != "" {
			t.Errorf("%s: %.80q parses as %q, %v", name, raw, tier, ok)
		}
	}
	signed := good[:20] + "-" + good[21:signedLength]
	sum := checksum(signed)
	if _, ok := Parse(signed + string(sum[:])); ok {
		t.Errorf("%s%s is not base62 and parses", signed, sum)
	}
	for i := prefixLength; i < len(good); i++ {
		changed := []byte(good)
		changed[i] = alphabet[(strings.IndexByte(alphabet, changed[i])+1)%62]
		if _, ok := Parse(string(changed)); ok {
			t.Errorf("%s, with character %d changed, parses", changed, i)
		}
	}
}

func TestHashIsSHA256(t *testing.T) {
	t.Parallel()
	sum := Hash("abc") // FIPS 180-2, appendix B.1
	if got := hex.EncodeToString(sum[:]); got != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Errorf("got %s", got)
	}
}

func TestDisplayShowsPrefixAndLastFour(t *testing.T) {
	t.Parallel()
	for tier, raw := range known {
		if got, expected := Display(raw), Prefix(tier)+"…"+raw[53:]; got != expected {
			t.Errorf("%s: got %s, expected %s", raw, got, expected)
		}
	}
	if got := Display("hunter2"); got != "" {
		t.Errorf("of something that is no key %q is shown", got)
	}
}

func TestParseTierAcceptsOnlyTheTwoNames(t *testing.T) {
	t.Parallel()
	for s, expected := range map[string]bool{
		"SERVER": true, "CLIENT": true, "server": false, "Client": false, "": false, "SERVER ": false, "ADMIN": false,
	} {
		if tier, ok := ParseTier(s); ok != expected || string(tier) != s {
			t.Errorf("%q: got %q, %v, expected %v", s, tier, ok, expected)
		}
	}
	if Prefix(Server) != "svc_api_" || Prefix(Client) != "svc_sdk_" || Prefix("ADMIN") != "" {
		t.Errorf("prefixes %q, %q, %q", Prefix(Server), Prefix(Client), Prefix("ADMIN"))
	}
}

func TestParseAllocatesNothing(t *testing.T) {
	raw := New(Server)
	if n := testing.AllocsPerRun(100, func() { Parse(raw) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseAgreesWithThePattern(f *testing.F) {
	f.Add(known[Server])
	f.Add(known[Client])
	f.Add("svc_api_")
	f.Fuzz(func(t *testing.T, raw string) {
		tier, ok := Parse(raw)
		if !ok {
			return
		}
		sum := big.NewInt(int64(crc32.ChecksumIEEE([]byte(raw[:51]))))
		digits := new(big.Int)
		for _, c := range raw[51:] {
			digits.Mul(digits, big.NewInt(62)).Add(digits, big.NewInt(int64(strings.IndexRune(alphabet, c))))
		}
		if len(raw) != 57 || !strings.HasPrefix(raw, Prefix(tier)) || digits.Cmp(sum) != 0 {
			t.Errorf("%q parses as %s", raw, tier)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	raw := New(Server)
	for b.Loop() {
		Parse(raw)
	}
}
