package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"deeplink/control/internal/clicks"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

type clicksReclassifyCommand struct {
	clickRetention
	Since string `required:"" help:"Classify the kept clicks of this day (UTC) and later again, such as 2030-01-31."`
	Org   string `help:"Key of the organization. Default: all."`
}

// Help implements kong's detailed help.
func (*clicksReclassifyCommand) Help() string {
	return "Classifies clicks again with the rules of this program, and corrects all figures by the difference, while new clicks arrive. It works in " +
		"short transactions; run it again if it is interrupted. The audit trail of each organization in which a click changed gets an entry."
}

// Validate implements kong's check of a command.
func (c *clicksReclassifyCommand) Validate() error { return c.clickRetention.check() }

// reclassified is the result of control clicks reclassify.
type reclassified struct {
	Since string `json:"since"`
	clicks.Reclassified
}

// Run implements control clicks reclassify.
func (c *clicksReclassifyCommand) Run(t *env) error {
	since, err := time.Parse(time.DateOnly, c.Since)
	if err != nil {
		return fmt.Errorf("%w: --since must be a day such as 2030-01-31", errArgument)
	}
	pool, err := t.openPool(1)
	if err != nil {
		return err
	}
	defer pool.Close()
	orgKey := ""
	if c.Org != "" {
		s := store.New(pool, "")
		ctx, cancel := context.WithTimeout(t.ctx, commandTimeout)
		defer cancel()
		o, err := organization(ctx, s, c.Org)
		if err != nil {
			return err
		}
		orgKey = o.OrgKey
	}
	// No deadline: the time depends on the number of clicks. Each statement has its own bound.
	result, err := clicks.Reclassify(t.ctx, pool, operatorActor(), orgKey, since, c.ClickRetention)
	if err != nil {
		return err
	}
	return t.print(reclassified{c.Since, result})
}

type clicksForgetCommand struct {
	Slot string `arg:"" help:"Slot of the edge, as doctor and the responses of the API name it."`
}

// Help implements kong's detailed help.
func (*clicksForgetCommand) Help() string {
	return "Gives up the logs of an edge that is dead and whose disk will not return: figures no longer wait for them. Clicks in these logs are missing in " +
		"the figures. If the edge returns all the same, its clicks are counted as late."
}

// Run implements control clicks forget.
func (c *clicksForgetCommand) Run(t *env) error {
	pool, err := t.openPool(1)
	if err != nil {
		return err
	}
	defer pool.Close()
	ctx, cancel := context.WithTimeout(t.ctx, commandTimeout)
	defer cancel()
	forgot, err := clicks.Forget(ctx, pool, operatorActor(), c.Slot)
	if err != nil {
		return fmt.Errorf("slot %q: %w", c.Slot, err)
	}
	return t.print(forgot)
}

type clicksExportCommand struct {
	clickRetention
	Org    string `required:"" help:"Key of the organization."`
	Since  string `required:"" help:"Export clicks at this time or later: a time such as 2030-01-31T12:00:00Z, or a day (UTC)."`
	Until  string `help:"Export clicks before this time. Default: asOf, the time before which all clicks are counted."`
	Format string `default:"ndjson" enum:"ndjson,csv" help:"ndjson: one JSON object on each line. csv: RFC 4180."`
}

// Help implements kong's detailed help.
func (*clicksExportCommand) Help() string {
	return "Prints the clicks of all classes, the oldest first. It prints nothing and ends with exit code 2 if --until is after asOf, or if clicks from " +
		"--since on are not kept any more: an export is never silently incomplete. Set CLICKS_RETENTION as for control serve."
}

// Validate implements kong's check of a command.
func (c *clicksExportCommand) Validate() error { return c.clickRetention.check() }

// exportPage is the number of clicks per query of an export.
const exportPage = 1000

// Run implements control clicks export.
func (c *clicksExportCommand) Run(t *env) error {
	since, err := parseMoment("--since", c.Since)
	if err != nil {
		return err
	}
	pool, err := t.openPool(2)
	if err != nil {
		return err
	}
	defer pool.Close()
	reader := clicks.NewReader(pool, c.ClickRetention, func(string, string, string) string { return "" })
	ctx, cancel := context.WithTimeout(t.ctx, commandTimeout)
	defer cancel()
	found, err := organization(ctx, store.New(pool, ""), c.Org)
	if err != nil {
		return err
	}
	o := clicks.Organization{ID: found.ID, Key: found.OrgKey}
	state, err := reader.State(ctx, o)
	if err != nil {
		return err
	}
	until := state.AsOf
	if c.Until != "" {
		if until, err = parseMoment("--until", c.Until); err != nil {
			return err
		}
	}
	kept := state.KeptSince(c.ClickRetention)
	switch {
	case until.After(state.AsOf):
		return fmt.Errorf("%w: --until must not be after asOf, %s: later clicks may not be counted yet", errArgument, state.AsOf.UTC().Format(catalog.TimeFormat))
	case since.After(until):
		return fmt.Errorf("%w: --since must not be after --until, %s", errArgument, until.UTC().Format(catalog.TimeFormat))
	case kept != nil && since.Before(*kept):
		return fmt.Errorf("%w: --since must not be before %s: earlier clicks are not kept", errArgument, kept.UTC().Format(catalog.TimeFormat))
	}
	out := bufio.NewWriter(t.out)
	write := ndjsonWriter(out)
	if c.Format == "csv" {
		write = csvWriter(out)
	}
	request := clicks.PageRequest{From: since, To: until, Limit: exportPage}
	for {
		page, err := reader.Clicks(t.ctx, o, request)
		if err != nil {
			return err
		}
		if err := write(page.Clicks); err != nil {
			return err
		}
		if len(page.Clicks) < exportPage {
			return out.Flush()
		}
		request.After = page.Next
	}
}

func ndjsonWriter(out io.Writer) func([]clicks.RawClick) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return func(rows []clicks.RawClick) error {
		for _, row := range rows {
			if err := encoder.Encode(row); err != nil {
				return err
			}
		}
		return nil
	}
}

// csvColumns are the fields of a click, in the order of its JSON form.
var csvColumns = []string{
	"id", "at", "linkId", "outcome", "class", "reason", "ruleset", "country", "language", "referrer", "os", "browser", "device", "agent", "late",
}

// csvWriter returns a function that writes rows, after a line with the names of the columns.
func csvWriter(out io.Writer) func([]clicks.RawClick) error {
	w := csv.NewWriter(out)
	w.UseCRLF = true
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	header := true
	return func(rows []clicks.RawClick) error {
		if header {
			header = false
			if err := w.Write(csvColumns); err != nil {
				return err
			}
		}
		for _, row := range rows {
			cells := []string{
				row.ID, row.At.UTC().Format(catalog.TimeFormat), text(row.LinkID), row.Outcome, row.Class, row.Reason, fmt.Sprint(row.Ruleset), text(row.Country),
				text(row.Language), text(row.Referrer), row.OS, row.Browser, row.Device, text(row.Agent), fmt.Sprint(row.Late),
			}
			for i, cell := range cells {
				// Spreadsheets would run such a cell as a formula.
				if strings.HasPrefix(cell, "=") || strings.HasPrefix(cell, "+") || strings.HasPrefix(cell, "-") || strings.HasPrefix(cell, "@") {
					cells[i] = "'" + cell
				}
			}
			if err := w.Write(cells); err != nil {
				return err
			}
		}
		w.Flush()
		return w.Error()
	}
}
