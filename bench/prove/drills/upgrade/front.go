package upgrade

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"deeplink/bench/prove/baseline"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
	"deeplink/deploy/stack"
	"deeplink/shared/devservers"
)

const (
	// frontLooks is the interval of readiness checks, frontPatience the timeout of each.
	frontLooks    = 100 * time.Millisecond
	frontPatience = 500 * time.Millisecond
)

// front is nginx with deploy/proxy/nginx.conf in front of edges and controls, with the readiness checks of a load balancer: it requests
// /readyz of each program and routes only to ready ones.
type front struct {
	clicks, api string // where nginx listens

	nginx    *devservers.Program
	template string
	config   string
	stop     context.CancelFunc
	watching sync.WaitGroup
	err      error // of the watch goroutine, set when it has ended

	mu     sync.Mutex
	admins map[string]string // by public address: the address for readiness checks
	listed []string          // public addresses in nginx's configuration
}

// startFront writes the configuration. follow starts nginx.
func startFront(ctx context.Context, dir string, log io.Writer) (*front, error) {
	root, err := fleet.ModuleRoot(ctx)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, "deploy", "proxy", "nginx.conf"))
	if err != nil {
		return nil, err
	}
	addrs, err := fleet.FreeAddrs(2)
	if err != nil {
		return nil, err
	}
	f := &front{clicks: addrs[0], api: addrs[1], config: filepath.Join(dir, "nginx.conf"), admins: make(map[string]string)}
	f.template = strings.NewReplacer(
		"pid /tmp/nginx.pid;", "daemon off;\npid "+filepath.Join(dir, "nginx.pid")+";",
		"access_log /dev/stdout responses;", "access_log off;",
		"listen 8080 ", "listen "+f.clicks+" ", "listen 8081 ", "listen "+f.api+" ",
	).Replace(string(text))
	return f, nil
}

// know sets the addresses of a program: where it serves, and where it reports readiness.
func (f *front) know(n *stack.Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.admins[n.Addr] = n.Admin
}

// follow starts nginx with all programs, and updates it on every change of readiness until close.
func (f *front) follow(ctx context.Context, edges, controls []*stack.Node) error {
	var groups [2][]string
	for i, nodes := range [2][]*stack.Node{edges, controls} {
		for _, n := range nodes {
			groups[i] = append(groups[i], n.Addr)
		}
	}
	if err := f.write(groups[0], groups[1]); err != nil {
		return err
	}
	path, err := baseline.Find("nginx")
	if err != nil {
		return err
	}
	if f.nginx, err = devservers.StartProgram(path, []string{"-c", f.config, "-e", filepath.Join(filepath.Dir(f.config), "nginx.log")}, []string{"PATH=" + os.Getenv("PATH")}, io.Discard); err != nil {
		return err
	}
	for !connects(f.api) {
		if f.nginx.Exit() != "" || !fleet.Pause(ctx, 20*time.Millisecond) {
			text, _ := os.ReadFile(filepath.Join(filepath.Dir(f.config), "nginx.log"))
			return fmt.Errorf("nginx does not listen: %s\n%s", f.nginx.Exit(), text)
		}
	}
	ctx, f.stop = context.WithCancel(context.WithoutCancel(ctx))
	f.watching.Go(func() { f.err = f.watch(ctx, groups) })
	return nil
}

func connects(addr string) bool {
	v := visitor.New(addr)
	defer v.HangUp()
	return v.Connect() == nil
}

// watch checks all programs and has nginx reload its configuration when readiness has changed. An upstream never becomes empty: it keeps
// its last server.
func (f *front) watch(ctx context.Context, groups [2][]string) error {
	told := groups
	for fleet.Pause(ctx, frontLooks) {
		next := told
		for i, group := range groups {
			if ready := f.ready(ctx, group); len(ready) > 0 {
				next[i] = ready
			}
		}
		if slices.Equal(next[0], told[0]) && slices.Equal(next[1], told[1]) {
			continue
		}
		if err := f.write(next[0], next[1]); err != nil {
			return err
		}
		if err := f.nginx.Signal(syscall.SIGHUP); err != nil {
			return err
		}
		told = next
	}
	return nil
}

// ready returns the ready programs of a group.
func (f *front) ready(ctx context.Context, group []string) (ready []string) {
	ctx, cancel := context.WithTimeout(ctx, frontPatience)
	defer cancel()
	for _, addr := range group {
		f.mu.Lock()
		admin := f.admins[addr]
		f.mu.Unlock()
		if _, err := fleet.Fetch(ctx, "http://"+admin+"/readyz"); err == nil {
			ready = append(ready, addr)
		}
	}
	return ready
}

var upstreamServers = regexp.MustCompile(`(upstream (\w+) \{\n)(\s+server [^\n]+\n)+`)

// write writes the configuration with these servers.
func (f *front) write(edges, controls []string) error {
	text := upstreamServers.ReplaceAllStringFunc(f.template, func(block string) string {
		parts := upstreamServers.FindStringSubmatch(block)
		addrs := edges
		if parts[2] == "controls" {
			addrs = controls
		}
		block = parts[1]
		for _, addr := range addrs {
			block += "server " + addr + " max_fails=3 fail_timeout=2s;\n"
		}
		return block
	})
	if err := os.WriteFile(f.config, []byte(text), 0o644); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed = append(slices.Clone(edges), controls...)
	return nil
}

// lists waits until nginx's configuration contains an address.
func (f *front) lists(ctx context.Context, addr string) error {
	for fleet.Pause(ctx, frontLooks/2) {
		f.mu.Lock()
		listed := slices.Contains(f.listed, addr)
		f.mu.Unlock()
		if listed {
			return nil
		}
	}
	return ctx.Err()
}

// close stops nginx.
func (f *front) close() error {
	if f.stop != nil {
		f.stop()
		f.watching.Wait()
	}
	if f.nginx == nil {
		return f.err
	}
	if err := f.nginx.Stop(context.Background(), fleet.StopTimeout); err != nil {
		return err
	}
	return f.err
}
