package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// printer writes progress to the terminal. It is safe for concurrent use.
type printer struct {
	started time.Time

	mu  sync.Mutex
	out io.Writer
}

func newPrinter(out io.Writer) *printer { return &printer{out: out, started: time.Now()} }

func (p *printer) step(what string) {
	p.print("%6.1fs  %s\n", time.Since(p.started).Seconds(), what)
}

func (p *printer) note(format string, values ...any) {
	p.print("         %s\n", fmt.Sprintf(format, values...))
}

func (p *printer) print(format string, values ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format, values...)
}

const banner = `
Deeplink is running. Ctrl-C stops it; its data stays in %[1]s.

  edges     %[2]s  %[3]s
  API       %[4]s  (documentation: %[4]s/docs)
  console   %[4]s/console
            %[8]s
            (this link signs you in once, within 15 minutes; for another one, after the next line: control console-link --org demo --role owner)
  identity  %[5]s  (for development: signs in anyone, and signs a session token for anyone)
  log       %[1]s/deeplink.log

Create a link, click it on both edges, delete it and click it again. In another terminal:

  . %[6]s
  ID=$(curl -s "$API/links" -H "$AUTH" --json '{"path":"/welcome","shortCode":"hello","fallbackUrl":"https://example.com/welcome"}' | field id)
  curl -si "$EDGE/%[7]s/hello" "$EDGE2/%[7]s/hello" | grep -iE '^(HTTP|Location)'
  curl -s -X DELETE "$API/links/$ID" -H "$AUTH"
  curl -s "$EDGE/%[7]s/hello" "$EDGE2/%[7]s/hello"

`

func (p *printer) banner(r ready, dir, env string) {
	p.step("ready")
	p.print(banner, dir, r.EdgeURLs[0], r.EdgeURLs[1], r.ControlURL, r.IdentityURL, env, r.Organization.OrgKey, r.ConsoleLink)
}
