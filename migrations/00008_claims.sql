-- +goose Up
-- A claim that nothing proves excludes nobody, or a stranger could keep the owner of a host away from it: any number of
-- organizations may have the same host pending, one may have it verified. Edges look at verified domains alone.
create unique index domains_verified_host on domains (host) where status = 'verified';
create unique index domains_organization_host on domains (organization_id, host);
alter table domains drop constraint domains_host_key;
comment on column domains.host is 'Custom host name in lower case, IDN as punycode. Null: the shared host, the default domain. Verified, it belongs to one organization.';
