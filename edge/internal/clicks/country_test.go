package clicks

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"deeplink/shared/clientip"
)

// countryFile is a database in MaxMind's format (maxmind.github.io/MaxMind-DB) in which every IPv6 and IPv4 address has one country.
func countryFile(code string) []byte {
	var b bytes.Buffer
	text := func(s string) { b.WriteByte(2<<5 | byte(len(s))); b.WriteString(s) }
	number := func(n byte, kind byte) { // kind 5: uint16, 6: uint32
		b.WriteByte(kind<<5 | 1)
		b.WriteByte(n)
	}
	// One node of two records of 24 bits. Both point to the first byte of the data: node count + 16 + 0.
	b.Write([]byte{0, 0, 17, 0, 0, 17})
	b.Write(make([]byte, 16))
	b.WriteByte(7<<5 | 1) // a map of one
	text("country")
	b.WriteByte(7<<5 | 1)
	text("iso_code")
	text(code)
	b.WriteString("\xab\xcd\xefMaxMind.com")
	b.WriteByte(7<<5 | 6)
	text("node_count")
	number(1, 6)
	text("record_size")
	number(24, 5)
	text("ip_version")
	number(6, 5)
	text("database_type")
	text("Test")
	text("binary_format_major_version")
	number(2, 5)
	text("binary_format_minor_version")
	b.WriteByte(5 << 5)
	return b.Bytes()
}

func TestChangedFileOfCountriesIsReadAgainAndADamagedOneIsNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "countries.mmdb")
	write := func(text []byte) {
		t.Helper()
		// In place, as cp does: a mapped file would lose its pages.
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		changed := time.Now().Add(time.Duration(len(text)) * time.Second)
		if err := os.Chtimes(path, changed, changed); err != nil {
			t.Fatal(err)
		}
	}
	write(countryFile("DE"))
	c, err := openCountries("", path, clientip.Proxies{}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	client := [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 1}
	other := [16]byte{0x20, 0x01, 0x0d, 0xb8}
	for _, step := range []struct {
		name string
		text []byte
		want string
	}{
		{"first", nil, "DE"},
		{"damaged", []byte("no database"), "DE"},
		{"empty", []byte{}, "DE"},
		{"another", countryFile("FR"), "FR"},
		{"with a code that is no country", countryFile("ZZ"), ""},
	} {
		if step.text != nil {
			write(step.text)
			c.reload()
		}
		for _, address := range [][16]byte{client, other} {
			got := c.of(nil, &address)
			if string(bytes.Trim(got[:], "\x00")) != step.want {
				t.Errorf("%s: %q, expected %q", step.name, got, step.want)
			}
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	c.reload()
	write(countryFile("IT"))
	c.reload()
	if got := c.of(nil, &client); string(got[:]) != "IT" {
		t.Errorf("after the file was away: %q, expected IT", got)
	}
}
