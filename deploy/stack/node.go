package stack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"deeplink/shared/devservers"
)

// readyTimeout bounds how long a program may take until it is ready.
const readyTimeout = 30 * time.Second

// Node is a control or an edge that runs as a process.
type Node struct {
	*devservers.Program
	// Addr is where it serves, Admin where its health and metrics are: host and port.
	Addr, Admin string
}

// URL is the base address of the node.
func (n *Node) URL() string { return "http://" + n.Addr }

// StartControl starts a control on addr and waits until it is ready. Settings are environment variables, NAME=value; for repeated names the
// last one wins. Nodes stop without a drain delay, because there is no load balancer. The canary is off unless the settings enable it,
// because measurements would include it.
func (s *Stack) StartControl(ctx context.Context, addr string, settings ...string) (*Node, error) {
	node, err := s.LaunchControl(addr, settings...)
	if err != nil {
		return nil, err
	}
	return node, node.readyOrKilled(ctx)
}

// LaunchControl is StartControl without the wait.
func (s *Stack) LaunchControl(addr string, settings ...string) (*Node, error) {
	admin, err := devservers.FreeAddr()
	if err != nil {
		return nil, err
	}
	return s.launch("control", addr, admin, append([]string{
		"DATABASE_URL=" + s.Control, "REDIS_URL=" + s.Redis.URL(), "CONTROL_ADDR=" + addr, "CONTROL_ADMIN_ADDR=" + admin, "CONTROL_DRAIN=0s",
		"CONTROL_CANARY=0s",
	}, settings...))
}

// StartEdge starts an edge on addr and waits until it is ready. Its slot is addr unless the settings say otherwise.
func (s *Stack) StartEdge(ctx context.Context, addr string, settings ...string) (*Node, error) {
	node, err := s.LaunchEdge(addr, settings...)
	if err != nil {
		return nil, err
	}
	return node, node.readyOrKilled(ctx)
}

// LaunchEdge is StartEdge without the wait.
func (s *Stack) LaunchEdge(addr string, settings ...string) (*Node, error) {
	admin, err := devservers.FreeAddr()
	if err != nil {
		return nil, err
	}
	return s.launch("edge", addr, admin, append([]string{
		"EDGE_CLICKS_DIR=" + s.clicksDir(addr), "EDGE_CLICKS_BYTES=" + edgeClicksBytes,
		"DATABASE_URL=" + s.Edge, "REDIS_URL=" + s.Redis.URL(), "EDGE_ADDR=" + addr, "EDGE_ADMIN_ADDR=" + admin,
		"EDGE_SLOT=" + addr, "EDGE_DRAIN=0s", "MATCH_TOKEN_KEYS=" + s.tokenKeys,
	}, settings...))
}

// edgeClicksBytes is EDGE_CLICKS_BYTES of edges: 256 MiB, so that several of them fit on the disk of a laptop.
const edgeClicksBytes = "268435456"

// clicksDir is the directory of the clicks of the edge on addr.
func (s *Stack) clicksDir(addr string) string {
	return filepath.Join(s.options.Dir, "clicks", strings.ReplaceAll(addr, ":", "-"))
}

func (s *Stack) launch(program, addr, admin string, settings []string) (*Node, error) {
	process, err := devservers.StartProgram(filepath.Join(s.options.Bin, program), nil, s.environment(settings...), s.options.Output)
	if err != nil {
		return nil, err
	}
	return &Node{Program: process, Addr: addr, Admin: admin}, nil
}

func (n *Node) readyOrKilled(ctx context.Context) error {
	if err := n.Ready(ctx); err != nil {
		_ = n.Kill()
		return fmt.Errorf("node on %s: %w", n.Addr, err)
	}
	return nil
}

// Ready waits up to 30 s until the node is ready. It fails at once when the process ends.
func (n *Node) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		if n.says(ctx, "/readyz") {
			return nil
		}
		select {
		case <-n.Exited():
			return fmt.Errorf("ended before it was ready: %s", n.Exit())
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (n *Node) says(ctx context.Context, path string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Admin+path, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode == http.StatusOK
}
