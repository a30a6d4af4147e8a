package clicks

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oschwald/maxminddb-golang"
	"github.com/valyala/fasthttp"

	"deeplink/shared/click"
	"deeplink/shared/clientip"
)

// reloadEvery is how often the file of countries is checked.
const reloadEvery = 10 * time.Second

// countries finds the country of a client.
type countries struct {
	header  []byte // canonical; nil: none
	proxies clientip.Proxies
	path    string // empty: none
	table   atomic.Pointer[countryTable]
	log     *slog.Logger
}

// countryTable is one version of the file, in memory: to read from a mapped file that is truncated would end the process.
type countryTable struct {
	reader   *maxminddb.Reader
	size     int64
	modified time.Time
	mu       sync.RWMutex
	codes    map[uintptr][2]byte // by offset of the record in the file
}

// openCountries returns nil if there is neither a header nor a file. It fails if the file cannot be read.
func openCountries(header, path string, proxies clientip.Proxies, log *slog.Logger) (*countries, error) {
	if header == "" && path == "" {
		return nil, nil
	}
	c := &countries{proxies: proxies, path: path, log: log}
	if header != "" {
		var h fasthttp.RequestHeader
		h.Set(header, "x")
		for key := range h.All() {
			c.header = append([]byte(nil), key...)
		}
	}
	if path != "" {
		table, err := readCountries(path)
		if err != nil {
			return nil, fmt.Errorf("%w: EDGE_GEOIP_FILE: %w", ErrSettings, err)
		}
		c.table.Store(table)
	}
	return c, nil
}

func readCountries(path string) (*countryTable, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	reader, err := maxminddb.FromBytes(text)
	if err != nil {
		return nil, err
	}
	return &countryTable{reader: reader, size: info.Size(), modified: info.ModTime(), codes: make(map[uintptr][2]byte)}, nil
}

// reload reads the file again if it has changed. If it cannot be read, the version before stays in use.
func (c *countries) reload() {
	if c == nil || c.path == "" {
		return
	}
	old := c.table.Load()
	info, err := os.Stat(c.path)
	if err == nil && info.Size() == old.size && info.ModTime().Equal(old.modified) {
		return
	}
	if err == nil {
		var table *countryTable
		if table, err = readCountries(c.path); err == nil {
			c.table.Store(table)
			return
		}
	}
	c.log.Warn("the file of countries cannot be read; the edge keeps using the version before", "path", c.path, "error", err)
}

// trusts reports whether the peer of a request may name the country of its client.
func (c *countries) trusts(ctx *fasthttp.RequestCtx) bool {
	tcp, ok := ctx.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return false
	}
	return c.proxies.Contains(tcp.AddrPort().Addr())
}

// of returns the country that a header names or, if it names none, that of an address; zero if it is unknown.
func (c *countries) of(header []byte, client *[16]byte) [2]byte {
	if code, ok := click.Country(header); ok {
		return code
	}
	table := c.table.Load()
	if table == nil {
		return [2]byte{}
	}
	return table.lookup(client)
}

func (t *countryTable) lookup(client *[16]byte) [2]byte {
	ip := net.IP(client[:])
	if v4 := netip.AddrFrom16(*client); v4.Is4In6() {
		ip = ip[12:]
	}
	offset, err := t.reader.LookupOffset(ip)
	if err != nil || offset == maxminddb.NotFound {
		return [2]byte{}
	}
	t.mu.RLock()
	code, known := t.codes[offset]
	t.mu.RUnlock()
	if known {
		return code
	}
	var found struct {
		Country struct {
			Code string `maxminddb:"iso_code"`
		} `maxminddb:"country"`
	}
	if err := t.reader.Decode(offset, &found); err != nil && !errors.As(err, new(maxminddb.UnmarshalTypeError)) {
		return [2]byte{}
	}
	code, _ = click.Country([]byte(found.Country.Code))
	t.mu.Lock()
	t.codes[offset] = code
	t.mu.Unlock()
	return code
}
