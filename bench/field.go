package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"

	"deeplink/bench/baseline"
	"deeplink/bench/load"
	"deeplink/shared/daemon"
)

// The contenders.
const (
	theEdge       = "edge"
	sameJobNginx  = "nginx, same job"
	fixedNginx    = "nginx, return 302"
	fixedFasthttp = "fasthttp, fixed 302, tuned"
	fixedNetHTTP  = "net/http, fixed 302"
)

const (
	// sameJobLinks are as many as nginx is told of, fewLinks as fit into the caches of a processor.
	sameJobLinks, fewLinks = 10_000, 1_000
	// inspected is how many links are looked at before anything is measured.
	inspected = 100
	// fieldCache holds some three million links.
	fieldCache = 2 << 30
)

// Who answers and who asks have a core each, where there are two.
var serverCore, clientCore = cores()

// cores returns the first and the last core that this process may use, as taskset names them.
func cores() (first, last string) {
	text, _ := os.ReadFile("/proc/self/status") // without it, it is the first core for all
	for line := range strings.Lines(string(text)) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			if ends := strings.FieldsFunc(list, func(c rune) bool { return c < '0' || c > '9' }); len(ends) > 0 {
				return ends[0], ends[len(ends)-1]
			}
		}
	}
	return "0", "0"
}

func onCore(core string) []string { return []string{"taskset", "-c", core} }

// contender is a server, and what it is asked for.
type contender struct {
	name, scenario string
	addr           string
	pid            int
	keys           []string
}

// field is a Deeplink with one edge, filled and warm, and the servers that the edge is compared with, all on one core.
type field struct {
	*fleet
	keys       []string // of all links
	contenders []contender
	servers    []*daemon.Program
	log        io.Writer
}

// openField starts everything. The caller closes what it returns, also with an error.
func openField(ctx context.Context, links int, log io.Writer) (f *field, err error) {
	f = &field{log: &lockedWriter{out: log}}
	fleet, err := launch(ctx, 1, 1, f.log, "EDGE_CACHE_BYTES="+strconv.Itoa(fieldCache), "GOMAXPROCS=1")
	if err != nil {
		return f, err
	}
	f.fleet = fleet
	file := filepath.Join(f.dir, "keys")
	fill := fillCommand{Links: links, Organizations: min(links, 1000), Keys: file, Database: f.Owner, Rebuild: true, Audit: true}
	made, err := fill.fill(ctx, os.Stderr)
	if err != nil {
		return f, err
	}
	fmt.Fprintf(os.Stderr, "%d links in %.0f s\n", made.Links, made.Seconds)
	if f.keys, err = readKeys(file); err != nil {
		return f, err
	}
	if err := warm(ctx, f.edges[0], load.NewKeys(f.keys...), len(f.keys)); err != nil {
		return f, err
	}
	return f, f.enter(ctx)
}

// enter starts the others, each on a port of its own, and gives all of them their core.
func (f *field) enter(ctx context.Context) error {
	edge := f.edges[0]
	some := f.keys[:min(sameJobLinks, len(f.keys))]
	for _, keys := range [][]string{f.keys, f.keys[:min(fewLinks, len(f.keys))], f.keys[:1]} {
		f.contenders = append(f.contenders, contender{theEdge, countOf(len(keys), "link"), edge.Addr, edge.PID(), keys})
	}
	if err := pin(edge.PID()); err != nil {
		return err
	}
	targets, err := f.targets(some)
	if err != nil {
		return err
	}
	bin := filepath.Join(f.dir, "bin")
	if err := baseline.Build(ctx, bin); err != nil {
		return err
	}
	for _, other := range []struct {
		name  string
		start func(baseline.Options) (*daemon.Program, error)
	}{
		{sameJobNginx, func(o baseline.Options) (*daemon.Program, error) { return baseline.NginxSameJob(ctx, o, targets) }},
		{fixedNginx, func(o baseline.Options) (*daemon.Program, error) { return baseline.NginxFixed(ctx, o) }},
		{fixedFasthttp, func(o baseline.Options) (*daemon.Program, error) { return baseline.Fixed(ctx, o, bin, "fasthttp") }},
		{fixedNetHTTP, func(o baseline.Options) (*daemon.Program, error) { return baseline.Fixed(ctx, o, bin, "nethttp") }},
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
		f.contenders = append(f.contenders, contender{other.name, countOf(len(some), "link"), options.Addr, server.PID(), some})
	}
	return f.inspect(ctx)
}

func countOf(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// options are those of one more server.
func (f *field) options() (baseline.Options, error) {
	addrs, err := freeAddrs(1)
	if err != nil {
		return baseline.Options{}, err
	}
	dir, err := os.MkdirTemp(f.dir, "baseline-")
	return baseline.Options{Dir: dir, Addr: addrs[0], Prefix: onCore(serverCore), Output: f.log}, err
}

// pin gives every thread of a process the core of servers, and with them those that they make. It is done twice for the ones made
// meanwhile.
func pin(pid int) error {
	for range 2 {
		cmd := exec.Command("taskset", "-a", "-c", "-p", serverCore, strconv.Itoa(pid))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%q: %w: %s", cmd.Args, err, out)
		}
	}
	return nil
}

// targets asks the edge where links lead.
func (f *field) targets(keys []string) (map[string]string, error) {
	v := newVisitor(f.edges[0].Addr)
	defer v.hangUp()
	targets := make(map[string]string, len(keys))
	for _, key := range keys {
		if status, err := v.click(key); err != nil || status != http.StatusFound {
			return nil, fmt.Errorf("%s: %d, %w", key, status, err)
		}
		targets[key] = string(v.response.Header.Peek("Location"))
	}
	return targets, nil
}

var errContender = errors.New("this would compare different things")

// inspect asks every contender a few things before anything is measured: each has to redirect, and nginx in the edge's place to where
// the edge does, with the edge's headers.
func (f *field) inspect(ctx context.Context) error {
	defer client.CloseIdleConnections()
	for _, c := range f.contenders {
		for _, key := range c.keys[:min(inspected, len(c.keys))] {
			got, err := headersOf(ctx, c.addr, key)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if c.name != sameJobNginx {
				continue
			}
			expected, err := headersOf(ctx, f.edges[0].Addr, key)
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
	request.Header.Set("X-Forwarded-For", stranger().String())
	response, err := client.Do(request)
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

// close stops everything.
func (f *field) close(ctx context.Context) error {
	var errs []error
	for _, server := range f.servers {
		errs = append(errs, server.Kill())
	}
	if f.fleet != nil {
		errs = append(errs, f.fleet.close(ctx))
	}
	return errors.Join(errs...)
}
