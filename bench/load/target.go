package load

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"time"
)

// Target is a server.
type Target struct {
	Host string // for the Host header and the certificate, as the URL has it
	addr string
	tls  bool
}

// ParseTarget parses http://host, http://host:port or the same with https. It rejects a path: sources choose the paths.
func ParseTarget(text string) (Target, error) {
	u, err := url.Parse(text)
	if err != nil {
		return Target{}, err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
		return Target{}, fmt.Errorf("%q must be http://host:port or https://host:port", text)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return Target{Host: u.Host, addr: net.JoinHostPort(u.Hostname(), port), tls: u.Scheme == "https"}, nil
}

// dial connects within timeout, including the TLS handshake.
func (t Target) dial(ctx context.Context, config *tls.Config, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var dialer net.Dialer
	if !t.tls {
		return dialer.DialContext(ctx, "tcp", t.addr)
	}
	config = config.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	config.NextProtos = []string{"http/1.1"}
	if config.ServerName == "" {
		config.ServerName = (&url.URL{Host: t.Host}).Hostname()
	}
	return (&tls.Dialer{NetDialer: &dialer, Config: config}).DialContext(ctx, "tcp", t.addr)
}
