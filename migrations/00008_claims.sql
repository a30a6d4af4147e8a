-- +goose Up
-- An unproved claim must not exclude others, or any organization could block the owner of a host: any number of organizations may have the
-- same host pending, but only one may have it verified. Edges read verified domains only.
create unique index domains_verified_host on domains (host) where status = 'verified';
create unique index domains_organization_host on domains (organization_id, host);
alter table domains drop constraint domains_host_key;
comment on column domains.host is 'Custom host name in lower case, IDN as punycode. Null: the shared host, the default domain. Verified, it belongs to one organization.';
