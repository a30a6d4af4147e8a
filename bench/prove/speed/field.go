package speed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/google/go-cmp/cmp"

	"deeplink/bench/fill"
	"deeplink/bench/load"
	"deeplink/bench/prove/baseline"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
	"deeplink/shared/devservers"
)

// The contenders.
const (
	theEdge       = "edge"
	sameJobNginx  = "nginx, same job"
	fixedNginx    = "nginx, return 302"
	fixedFasthttp = "fasthttp, fixed 302, tuned"
	fixedHeaders  = "fasthttp, fixed 302, the edge's headers"
	fixedNetHTTP  = "net/http, fixed 302"
)

const (
	// sameJobLinks is how many links nginx is configured with, fewLinks how many fit into the caches of a processor.
	sameJobLinks, fewLinks = 10_000, 1_000
	// inspected is how many links are checked before the measurement.
	inspected = 100
	// fieldCache holds about three million links.
	fieldCache = 2 << 30
)

// contender is a server, and the requests for it.
type contender struct {
	name, scenario string
	addr           string
	pid            int
	keys           []string
	requests       string // the file with the prepared requests
}

// field is a Deeplink with one edge, filled and warm, and the servers that the edge is compared with, all on one core.
type field struct {
	*fleet.Fleet
	keys       []string // of all links
	contenders []contender
	servers    []*devservers.Program
	log        io.Writer
}

// openField starts everything. The caller closes the result, also with an error.
func openField(ctx context.Context, links int, log io.Writer) (f *field, err error) {
	f = &field{log: &fleet.LockedWriter{Out: log}}
	launched, err := fleet.Launch(ctx, 1, 1, f.log, "EDGE_CACHE_BYTES="+strconv.Itoa(fieldCache), "GOMAXPROCS=1")
	if err != nil {
		return f, err
	}
	f.Fleet = launched
	file := filepath.Join(f.Dir, "keys")
	filling := fill.Command{Links: links, Organizations: min(links, 1000), Keys: file, Database: f.Owner, Rebuild: true, Audit: true}
	made, err := filling.Fill(ctx, os.Stderr)
	if err != nil {
		return f, err
	}
	fmt.Fprintf(os.Stderr, "%d links in %.0f s\n", made.Links, made.Seconds)
	if f.keys, err = fill.ReadKeys(file); err != nil {
		return f, err
	}
	if err := visitor.Warm(ctx, f.Edges[0], load.NewKeys(f.keys...), len(f.keys)); err != nil {
		return f, err
	}
	return f, f.enter(ctx)
}

// enter starts the other servers, each on its own port, and gives all of them their core.
func (f *field) enter(ctx context.Context) error {
	edge := f.Edges[0]
	some := f.keys[:min(sameJobLinks, len(f.keys))]
	for _, keys := range f.selections() {
		f.contenders = append(f.contenders, contender{theEdge, countOf(len(keys), "link"), edge.Addr, edge.PID(), keys, ""})
	}
	if err := fleet.Pin(edge.PID()); err != nil {
		return err
	}
	targets, err := f.targets(some)
	if err != nil {
		return err
	}
	bin := filepath.Join(f.Dir, "bin")
	if err := baseline.Build(ctx, bin); err != nil {
		return err
	}
	for _, other := range []struct {
		name  string
		start func(baseline.Options) (*devservers.Program, error)
	}{
		{sameJobNginx, func(o baseline.Options) (*devservers.Program, error) { return baseline.NginxSameJob(ctx, o, targets) }},
		{fixedNginx, func(o baseline.Options) (*devservers.Program, error) { return baseline.NginxFixed(ctx, o) }},
		{fixedFasthttp, func(o baseline.Options) (*devservers.Program, error) { return baseline.Fixed(ctx, o, bin, "fasthttp") }},
		{fixedHeaders, func(o baseline.Options) (*devservers.Program, error) {
			return baseline.Fixed(ctx, o, bin, "fasthttp-headers")
		}},
		{fixedNetHTTP, func(o baseline.Options) (*devservers.Program, error) { return baseline.Fixed(ctx, o, bin, "nethttp") }},
	} {
		options, err := f.options()
		if err != nil {
			return err
		}
		server, err := other.start(options)
		if err != nil {
			return fmt.Errorf("%s: %w", other.name, err)
		}
		f.servers = append(f.servers, server)
		f.contenders = append(f.contenders, contender{other.name, countOf(len(some), "link"), options.Addr, server.PID(), some, ""})
	}
	return f.inspect(ctx)
}

// addRevision adds the edge of a git revision to the contenders, with the same links in memory as the current edge, and returns its name.
// Both edges use the same database, which the current control has migrated.
func (f *field) addRevision(ctx context.Context, revision string) (name string, err error) {
	short, err := fleet.Revision(ctx, revision)
	if err != nil {
		return "", err
	}
	name = theEdge + " at " + short
	bin := filepath.Join(f.Dir, "against")
	fmt.Fprintf(os.Stderr, "building %s\n", name)
	if err := fleet.BuildRevision(ctx, revision, bin); err != nil {
		return "", err
	}
	addrs, err := fleet.FreeAddrs(1)
	if err != nil {
		return "", err
	}
	f.Use(bin)
	edge, err := f.StartEdge(ctx, addrs[0], f.EdgeSettings...)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	f.Edges = append(f.Edges, edge) // closed with the fleet
	if err := visitor.Warm(ctx, edge, load.NewKeys(f.keys...), len(f.keys)); err != nil {
		return "", err
	}
	if err := fleet.Pin(edge.PID()); err != nil {
		return "", err
	}
	for _, keys := range f.selections() {
		f.contenders = append(f.contenders, contender{name, countOf(len(keys), "link"), edge.Addr, edge.PID(), keys, ""})
	}
	return name, f.inspect(ctx)
}

// selections returns the sets of links that an edge is measured with: all, few, and one.
func (f *field) selections() [][]string {
	return [][]string{f.keys, f.keys[:min(fewLinks, len(f.keys))], f.keys[:1]}
}

func countOf(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// options returns those of one more server.
func (f *field) options() (baseline.Options, error) {
	addrs, err := fleet.FreeAddrs(1)
	if err != nil {
		return baseline.Options{}, err
	}
	dir, err := os.MkdirTemp(f.Dir, "baseline-")
	return baseline.Options{Dir: dir, Addr: addrs[0], Prefix: fleet.OnCore(fleet.ServerCore), Output: f.log}, err
}

// targets requests the links from the edge and returns their targets.
func (f *field) targets(keys []string) (map[string]string, error) {
	v := visitor.New(f.Edges[0].Addr)
	defer v.HangUp()
	targets := make(map[string]string, len(keys))
	for _, key := range keys {
		if status, err := v.Click(key); err != nil || status != http.StatusFound {
			return nil, fmt.Errorf("%s: %d, %w", key, status, err)
		}
		targets[key] = string(v.Response.Header.Peek("Location"))
	}
	return targets, nil
}

var errContender = errors.New("the servers would not do the same work")

// inspect sends every contender some requests before the measurement: each must redirect, and nginx with the same job to the edge's
// targets, with the edge's headers.
func (f *field) inspect(ctx context.Context) error {
	defer fleet.Client.CloseIdleConnections()
	for _, c := range f.contenders {
		for _, key := range c.keys[:min(inspected, len(c.keys))] {
			got, err := headersOf(ctx, c.addr, key)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if c.name != sameJobNginx {
				continue
			}
			expected, err := headersOf(ctx, f.Edges[0].Addr, key)
			if err != nil {
				return err
			}
			for name := range expected {
				if name != "Date" && name != "X-Request-Id" && name != "Content-Length" && got[name] != expected[name] || got[name] == "" {
					return fmt.Errorf("%w: %s has %s", errContender, c.name, cmp.Diff(expected, got))
				}
			}
		}
	}
	return nil
}

// headersOf returns the headers of a redirect.
func headersOf(ctx context.Context, addr, path string) (map[string]string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("X-Forwarded-For", visitor.Stranger().String())
	response, err := fleet.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return nil, err
	}
	headers := make(map[string]string)
	for name := range response.Header {
		headers[name] = response.Header.Get(name)
	}
	if response.StatusCode != http.StatusFound || headers["Location"] == "" || headers["Date"] == "" {
		return nil, fmt.Errorf("%w: %s: %d with %v", errContender, path, response.StatusCode, headers)
	}
	return headers, nil
}

// Close stops everything.
func (f *field) Close(ctx context.Context) error {
	var errs []error
	for _, server := range f.servers {
		errs = append(errs, server.Kill())
	}
	if f.Fleet != nil {
		errs = append(errs, f.Fleet.Close(ctx))
	}
	return errors.Join(errs...)
}
