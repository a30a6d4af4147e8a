// Package baseline starts the servers that an edge is compared with: nginx and bare servers in Go, each set up to be as fast as it gets
// at what it does. They listen on the loopback alone and end with the process that started them.
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
	// Dir is a folder of the server's own, which is there.
	Dir string
	// Addr is host and port.
	Addr string
	// Prefix stands before the command, such as taskset and what it needs.
	Prefix []string
	// Output takes what the server writes. It must be safe for concurrent use.
	Output io.Writer
}

// NginxFixed starts nginx as a fixed redirect.
func NginxFixed(ctx context.Context, o Options) (*devservers.Program, error) {
	return o.nginx(ctx, "fixed.conf")
}

// NginxSameJob starts nginx as an edge with the links given, from the path of each to its target.
func NginxSameJob(ctx context.Context, o Options, links map[string]string) (*devservers.Program, error) {
	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(links)) {
		// A value may hold variables, and there is no way to write a dollar sign.
		if target := links[path]; strings.ContainsAny(path+target, "$\"\\\n") {
			return nil, fmt.Errorf("nginx cannot be told that %s leads to %s", path, target)
		}
		fmt.Fprintf(&text, "%q %q;\n", path, links[path])
	}
	if err := os.WriteFile(o.links(), []byte(text.String()), 0o644); err != nil {
		return nil, err
	}
	return o.nginx(ctx, "samejob.conf")
}

func (o Options) links() string { return filepath.Join(o.Dir, "links") }

// Fixed starts a fixed redirect in Go, by fasthttp or by nethttp. bin is a folder that [Build] filled.
func Fixed(ctx context.Context, o Options, bin, library string) (*devservers.Program, error) {
	return o.start(ctx, filepath.Join(bin, "fixed"), library, o.Addr)
}

// Build compiles the servers in Go into dir, from the module that the working directory belongs to.
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

// Find returns where a program is, or tells how to install it. Debian has nginx where only root looks.
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

// start starts a server and waits until it can be connected to.
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
		_ = server.Kill() // the error says what matters
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
			return fmt.Errorf("it ended at once: %s", server.Exit())
		case <-ctx.Done():
			return fmt.Errorf("it does not listen: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
