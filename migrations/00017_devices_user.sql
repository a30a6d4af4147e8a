-- +goose NO TRANSACTION
-- +goose Up
-- Which devices a user has. It is built while devices are written; a build that broke off leaves an invalid index, which the next try drops.
-- identities.user_id is compared in "C", and an index for another collation would be of no use.
drop index concurrently if exists devices_user;
create index concurrently devices_user on devices (organization_id, user_id collate "C") where user_id is not null;
comment on index devices_user is 'Finds the devices of a user, to delete them, and whether an identity is still in use.';
