// Package catalog defines links, domains, organizations, plans and app configs: their fields, valid values, and whether a link resolves. It
// is pure (no clock, no I/O, standard library only), so that both programs and all tests apply the same rules.
package catalog
