// Package baseline starts the servers that an edge is compared with: nginx and minimal servers in Go, each tuned for its job. They listen
// on loopback only and end with the process that started them.
package baseline

import (
	"context"
	"embed"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"deeplink/shared/devservers"
)

// startTimeout bounds the time to the first connection.
const startTimeout = 10 * time.Second

//go:embed *.conf
var sources embed.FS

var templates = template.Must(template.ParseFS(sources, "*.conf"))

// Options say where a server runs.
type Options struct {
	// Dir is an existing folder that no other server uses.
	Dir string
	// Addr is host and port.
	Addr string
	// Prefix precedes the command, such as taskset with its arguments.
	Prefix []string
	// Output receives what the server writes. It must be safe for concurrent use.
	Output io.Writer
}

// NginxFixed starts nginx as a fixed redirect.
func NginxFixed(ctx context.Context, o Options) (*devservers.Program, error) {
	return o.nginx(ctx, "fixed.conf")
}

// NginxSameJob starts nginx with the redirects of an edge: links maps each path to its target.
func NginxSameJob(ctx context.Context, o Options, links map[string]string) (*devservers.Program, error) {
	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(links)) {
		// In an nginx map, "$" starts a variable and cannot be escaped.
		if target := links[path]; strings.ContainsAny(path+target, "$\"\\\n") {
			return nil, fmt.Errorf("nginx has no way to write the redirect from %s to %s", path, target)
		}
		fmt.Fprintf(&text, "%q %q;\n", path, links[path])
	}
	if err := os.WriteFile(o.links(), []byte(text.String()), 0o644); err != nil {
		return nil, err
	}
	return o.nginx(ctx, "samejob.conf")
}

func (o Options) links() string { return filepath.Join(o.Dir, "links") }

// Fixed starts a server in Go with a fixed redirect. library is the first argument of the program fixed: fasthttp, fasthttp-headers or
// nethttp. bin is a folder that [Build] filled.
func Fixed(ctx context.Context, o Options, bin, library string) (*devservers.Program, error) {
	return o.start(ctx, filepath.Join(bin, "fixed"), library, o.Addr)
}

// Build compiles these servers into dir, from the module of the working directory.
func Build(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), "deeplink/bench/prove/baseline/fixed")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the fixed redirects: %w\n%s", err, out)
	}
	return nil
}

func (o Options) nginx(ctx context.Context, name string) (*devservers.Program, error) {
	program, err := Find("nginx")
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	if err := templates.ExecuteTemplate(&text, name, struct{ Addr, Links string }{o.Addr, o.links()}); err != nil {
		return nil, err
	}
	config := filepath.Join(o.Dir, name)
	if err := os.WriteFile(config, []byte(text.String()), 0o644); err != nil {
		return nil, err
	}
	return o.start(ctx, program, "-p", o.Dir, "-c", config, "-e", filepath.Join(o.Dir, "error.log"))
}

// Find returns the path of a program, or an error that says how to install it. Debian installs nginx in a folder that only root has in
// PATH.
func Find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(filepath.Join("/usr/sbin", name))
	if err != nil {
		return "", fmt.Errorf("%w: deploy/local/install.sh %s installs it", err, name)
	}
	return path, nil
}

// start starts a server and waits until it accepts connections.
func (o Options) start(ctx context.Context, command ...string) (*devservers.Program, error) {
	command = append(slices.Clone(o.Prefix), command...)
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, err
	}
	environment := []string{"PATH=" + os.Getenv("PATH"), "GOMAXPROCS=1"}
	server, err := devservers.StartProgram(path, command[1:], environment, o.Output)
	if err != nil {
		return nil, err
	}
	if err := o.await(ctx, server); err != nil {
		_ = server.Kill() // the returned error is the one that matters
		return nil, fmt.Errorf("start %q: %w", command, err)
	}
	return server, nil
}

func (o Options) await(ctx context.Context, server *devservers.Program) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", o.Addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-server.Exited():
			return fmt.Errorf("it exited at startup: %s", server.Exit())
		case <-ctx.Done():
			return fmt.Errorf("it does not listen: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
