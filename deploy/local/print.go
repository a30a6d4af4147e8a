package main

import (
	"fmt"
	"io"
	"time"
)

// printer tells a person what happens.
type printer struct {
	out   io.Writer
	begun time.Time
}

func newPrinter(out io.Writer) *printer { return &printer{out: out, begun: time.Now()} }

func (p *printer) step(what string) {
	fmt.Fprintf(p.out, "%5.1fs  %s\n", time.Since(p.begun).Seconds(), what)
}

func (p *printer) note(format string, values ...any) {
	fmt.Fprintf(p.out, "        %s\n", fmt.Sprintf(format, values...))
}

const banner = `
Deeplink runs. Everything it keeps is in %[1]s; Ctrl-C stops it.

  edges     %[2]s  %[3]s
  control   %[4]s  (documentation: %[4]s/docs)
  console   %[4]s/console
  identity  %[5]s
  log       %[1]s/deeplink.log
  all of it %[1]s/ready.json

Make a link, click it on both edges, delete it and click again (paste these in another terminal):

curl -s -X POST %[4]s/links -H 'Authorization: Bearer %[6]s' -H 'Content-Type: application/json' -d '{"path":"/welcome","shortCode":"hello","fallbackUrl":"https://example.com/welcome","utmSource":"readme"}'
curl -si %[2]s/%[7]s/hello '%[3]s/%[7]s/hello?from=me' | grep -iE '^(HTTP|Location)'
curl -s -X DELETE -H 'Authorization: Bearer %[6]s' %[4]s/links/$(curl -s '%[4]s/links?search=hello' -H 'Authorization: Bearer %[6]s' | grep -oE '"id":"[^"]*","organizationId":"[^"]*","domainId":"[^"]*","shortCode":"hello"' | cut -d'"' -f4); curl -s %[2]s/%[7]s/hello %[3]s/%[7]s/hello

`

func (p *printer) banner(r ready, dir string) {
	p.step("ready")
	fmt.Fprintf(p.out, banner, dir, r.EdgeURLs[0], r.EdgeURLs[1], r.ControlURL, r.IdentityURL, r.Organization.ServerKey, r.Organization.OrgKey)
}
