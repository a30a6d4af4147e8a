package matchtoken

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	first  = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	second = "F0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFFE0E1E2E3E4E5E6E7E8E9EAEBECEDEEEF"
)

var (
	link  = [16]byte{0x01, 0x95, 0x51, 0x4c, 0x9a, 0, 0x7b, 0x3e, 0x8d, 0x2f, 0x3b, 0x6a, 0x1c, 0x9e, 0x4f, 0x10}
	click = time.Date(2026, 3, 1, 12, 0, 0, 7e6, time.UTC)
)

func parse(t testing.TB, text string) *Keys {
	t.Helper()
	keys, err := ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// known was computed with Python's hmac and base64, from version 1, the link, the time and the nonce 0 to 15 with the first key.
const known = "AQGVUUyaAHs-jS87ahyeTxABnKlFCgcAAQIDBAUGBwgJCgsMDQ4P1309juE6tqWJy0pZa3-acw"

func TestReadGivesWhatTheKnownTokenSays(t *testing.T) {
	t.Parallel()
	token, ok := parse(t, first).Read(known, click)
	want := Token{link, click, [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}
	if !ok || token != want {
		t.Errorf("read %+v, %v; expected %+v", token, ok, want)
	}
}

func TestReadGivesWhatWasAppended(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		keys, err := ParseKeys(first + "," + second)
		if err != nil {
			t.Fatal(err)
		}
		link := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "link"))
		at := time.UnixMilli(rapid.Int64Range(0, 1<<48-1).Draw(t, "at")).Add(time.Duration(rapid.Int64Range(0, 999_999).Draw(t, "ns")))
		before := rapid.SliceOf(rapid.Byte()).Draw(t, "before")
		text := keys.Append(bytes.Clone(before), link, at)
		if !bytes.HasPrefix(text, before) {
			t.Fatalf("%q does not begin with %q", text, before)
		}
		token, ok := keys.Read(string(text[len(before):]), at)
		if !ok || token.Link != link || !token.ClickedAt.Equal(at.Truncate(time.Millisecond)) {
			t.Fatalf("%q is read as %+v, %v", text, token, ok)
		}
	})
}

func TestTokensAreShortSafeInURLsAndNeverTheSame(t *testing.T) {
	t.Parallel()
	keys := parse(t, first)
	seen := make(map[[8]byte]bool) // each half is as random as the whole
	for range 10_000 {
		text := string(keys.Append(nil, link, click))
		if len(text) != Length || len(text) > 80 || strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Fatalf("token %q of %d characters", text, len(text))
		}
		token, ok := keys.Read(text, click)
		for _, half := range [2][8]byte{[8]byte(token.Nonce[:8]), [8]byte(token.Nonce[8:])} {
			if !ok || seen[half] {
				t.Fatalf("%q: read %v, repeated nonce: %v", text, ok, seen[half])
			}
			seen[half] = true
		}
	}
}

func TestEveryChangeIsRefused(t *testing.T) {
	t.Parallel()
	keys := parse(t, first+","+second)
	text := string(keys.Append(nil, link, click))
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]string{
		"empty": "", "padded": text + "=", "spaced": " " + text, "twice": text + text, "standard base64": strings.Repeat("+/", Length/2),
		"line break at the end": text[:Length-1] + "\n", "line break more": text + "\n", "line break inside": text[:9] + "\r" + text[9:],
		"NUL": text[:Length-1] + "\x00", "not ASCII": text[:Length-2] + "é", "zeros": strings.Repeat("A", Length), "long": strings.Repeat("A", 1<<16),
	}
	for n := range Length {
		changed["cut to "+text[:n]] = text[:n]
		changed["cut off "+text[:n]] = text[n+1:]
		for bit := range 8 {
			letter := []byte(text)
			letter[n] ^= 1 << bit
			changed["letter "+string(letter)] = string(letter)
		}
	}
	for bit := range 8 * size {
		flipped := bytes.Clone(raw)
		flipped[bit/8] ^= 1 << (bit % 8)
		text := base64.RawURLEncoding.EncodeToString(flipped)
		changed["bit "+text] = text
	}
	if len(changed) < 8*size+8*Length {
		t.Fatalf("%d changes", len(changed))
	}
	for name, text := range changed {
		if token, ok := keys.Read(text, click); ok || token != (Token{}) {
			t.Errorf("%.90s: read as %+v, %v", name, token, ok)
		}
	}
	if _, ok := keys.Read(text, click); !ok {
		t.Error("the unchanged token is rejected")
	}
}

// The decoder skips line breaks. A token that ends in a zero byte must not be accepted without it.
func TestTokenHasOneForm(t *testing.T) {
	t.Parallel()
	keys := parse(t, first)
	text := ""
	for !strings.HasSuffix(text, "AA") {
		text = string(keys.Append(nil, link, click))
	}
	for _, end := range []string{"\n\n", "\r\n", "A\n", "", "AAA", "AA=", "AB", "AP"} {
		if _, ok := keys.Read(text[:Length-2]+end, click); ok {
			t.Errorf("%q instead of AA: read", end)
		}
	}
}

func TestVersionsThatAreNotKnownAreRefused(t *testing.T) {
	t.Parallel()
	keys := parse(t, first)
	for v := range 256 {
		var raw [size]byte
		raw[0] = byte(v)
		copy(raw[timeAt:nonceAt], timeBytes(click))
		code := keys.all[0].code((*[signed]byte)(raw[:signed]))
		copy(raw[signed:], code[:])
		if _, ok := keys.Read(encoding.EncodeToString(raw[:]), click); ok != (v == version) {
			t.Errorf("version %d: read %v", v, ok)
		}
	}
}

func timeBytes(at time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli()))[2:]
}

func TestFirstKeySignsAndAllVerify(t *testing.T) {
	t.Parallel()
	of := func(text string) string { return string(parse(t, text).Append(nil, link, click)) }
	for _, test := range []struct {
		made, read string
		good       bool
	}{
		{first, first, true},
		{second, first + "," + second, true},
		{first, second + ", " + first, true},
		{first + "," + second, first, true},
		{first + "," + second, second, false},
		{first, second, false},
		{first, strings.Repeat(second+",", maxKeys-1) + first, true},
	} {
		if _, ok := parse(t, test.read).Read(of(test.made), click); ok != test.good {
			t.Errorf("made with %.70s, read with %.70s: %v, expected %v", test.made, test.read, ok, test.good)
		}
	}
}

func TestAgeIsBounded(t *testing.T) {
	t.Parallel()
	keys := parse(t, first)
	text := string(keys.Append(nil, link, click))
	for age, good := range map[time.Duration]bool{
		0: true, Lifetime: true, Lifetime + 1: false, Lifetime + time.Hour: false, 1 << 62: false,
		-Skew: true, -Skew - 1: false, -Lifetime: false, -1 << 62: false,
	} {
		if _, ok := keys.Read(text, click.Add(age)); ok != good {
			t.Errorf("%v after the click: read %v, expected %v", age, ok, good)
		}
	}
	for _, now := range []time.Time{{}, time.Unix(1<<40, 0)} {
		if _, ok := keys.Read(text, now); ok {
			t.Errorf("read at %v", now)
		}
	}
}

func TestCodeIsThatOfTheStandardLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.SliceOfN(rapid.Byte(), keySize, keySize).Draw(t, "secret")
		message := rapid.SliceOfN(rapid.Byte(), signed, signed).Draw(t, "message")
		standard := hmac.New(sha256.New, secret)
		standard.Write(message)
		ours := newKey([keySize]byte(secret))
		if got := ours.code((*[signed]byte)(message)); !bytes.Equal(got[:], standard.Sum(nil)[:codeSize]) {
			t.Fatalf("code %x, HMAC-SHA256 is %x", got, standard.Sum(nil))
		}
	})
}

func TestKeysAreReadStrictly(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		first: true, second: true, strings.ToUpper(first): true, " " + first + " ,\n" + second + "\n": true,
		strings.Repeat(first+",", maxKeys-1) + first: true, strings.Repeat(first+",", maxKeys) + first: false,
		"": false, ",": false, first + ",": false, "," + first: false, first + ",," + second: false,
		first[:63]: false, first + "0": false, first[:63] + "g": false, first[:62] + "é": false, first + ";" + second: false, "0x" + first[:62]: false,
	} {
		keys, err := ParseKeys(text)
		if (err == nil) != good || (keys != nil) != good {
			t.Errorf("%q: %v, %v; expected it to be good: %v", text, keys, err, good)
		}
		for n := 0; err != nil && n+4 <= len(text); n++ {
			if strings.Contains(err.Error(), text[n:n+4]) {
				t.Errorf("%q: the error shows a part of the key: %v", text, err)
			}
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	keys := parse(t, first+","+second)
	buf := make([]byte, 0, Length)
	changed, long := known[:Length-1]+"_", strings.Repeat("A", 100)
	for name, do := range map[string]func(){
		"append":      func() { buf = keys.Append(buf[:0], link, click) },
		"read":        func() { keys.Read(known, click) },
		"refuse":      func() { keys.Read(changed, click) },
		"refuse long": func() { keys.Read(long, click) },
	} {
		if n := testing.AllocsPerRun(100, do); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzRead(f *testing.F) {
	keys := parse(f, first)
	secret, err := hex.DecodeString(first)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(known)
	f.Add(known[1:])
	f.Add(strings.Repeat("A", Length))
	f.Add("é\x00\n=")
	f.Fuzz(func(t *testing.T, text string) {
		token, ok := keys.Read(text, click)
		if !ok {
			if token != (Token{}) {
				t.Fatalf("%q is rejected and returns %+v", text, token)
			}
			return
		}
		// Every accepted token has one form only, and its code requires the key.
		var raw [size]byte
		raw[0] = version
		copy(raw[linkAt:], token.Link[:])
		copy(raw[timeAt:], timeBytes(token.ClickedAt))
		copy(raw[nonceAt:], token.Nonce[:])
		standard := hmac.New(sha256.New, secret)
		standard.Write(raw[:signed])
		copy(raw[signed:], standard.Sum(nil))
		if again := base64.RawURLEncoding.EncodeToString(raw[:]); again != text {
			t.Fatalf("%q is read as %q", text, again)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	keys := parse(b, first)
	buf := make([]byte, 0, Length)
	b.ReportAllocs()
	for b.Loop() {
		buf = keys.Append(buf[:0], link, click)
	}
}

// BenchmarkRead shows that the time of a rejection does not reveal its cause.
func BenchmarkRead(b *testing.B) {
	keys := parse(b, first+","+second)
	good := string(keys.Append(nil, link, click))
	retired := string(parse(b, strings.Repeat("00", keySize)).Append(nil, link, click))
	for _, token := range []struct{ name, text string }{
		{"good", good},
		{"forged", strings.Repeat("B", Length-1) + "A"},
		{"first bit", "Z" + good[1:]},
		{"last bit", good[:Length-1] + string(good[Length-1]^0x12)},
		{"retired key", retired},
		{"old", string(keys.Append(nil, link, click.Add(-25*time.Hour)))},
		{"cut", good[:Length-1]},
		{"empty", ""},
		{"not base64", strings.Repeat("!", Length)},
		{"long", strings.Repeat("A", 100)},
	} {
		b.Run(token.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				keys.Read(token.text, click)
			}
		})
	}
}
