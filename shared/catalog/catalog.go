// Package catalog says what a link, a domain, an organization, a plan and an app config are, which values they may hold, and
// whether a link resolves. It is pure: no clock, no I/O, the standard library only, so that both programs and every test
// judge by the same rules.
package catalog
