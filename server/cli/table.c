#include "cli/cli.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const struct command commands[] = {
    {"serve", "", 0, 0, "c", "run the service in the foreground", cmd_serve},
    {"check", "", 0, 0, "ct", "check configuration, roots, credential and engine; print every error",
     cmd_check},
    {"key create", "NAME", 1, 1, "csg", "make an API key and print it, once", cmd_key_create},
    {"key list", "", 0, 0, "cj", "list the API keys", cmd_key_list},
    {"key revoke", "ID", 1, 1, "c", "revoke an API key from the next request on", cmd_key_revoke},
    {"channel on", "KEY", 1, 1, "c", "enable a channel", cmd_channel_on},
    {"channel off", "KEY", 1, 1, "c", "disable a channel; its workspace stays", cmd_channel_off},
    {"channel status", "KEY", 1, 1, "cj", "show one channel", cmd_channel_status},
    {"channel list", "", 0, 0, "cj", "list the channels", cmd_channel_list},
    {"channel reset", "KEY", 1, 1, "c", "let the next successful turn begin without history",
     cmd_channel_reset},
    {"channel stop", "KEY", 1, 1, "c", "abort the running turn of a channel", cmd_channel_stop},
    {"backup", "PATH", 1, 1, "c", "write a consistent copy of the state, while the service runs", cmd_backup},
    {"turn", "CHANNEL TEXT", 2, 2, "j", "run a turn on the service at CLOISTER_URL with CLOISTER_KEY",
     cmd_turn},
    {"version", "", 0, 0, "", "print version and build", cmd_version},
};

static const struct {
    char letter;
    const char *help;
} options[] = {
    {'c', "--config FILE    configuration (default " DEFAULT_CONFIG ")"},
    {'s', "--scope SCOPE    turns, turns:read, channels, files or admin; may be repeated"},
    {'g', "--channel GLOB   channels the key may use, as in 'web:*'; may be repeated"},
    {'j', "--json           print JSON"},
    {'t', "--state          check the integrity of the state as well"},
};

static void print_command(FILE *out, const struct command *c)
{
    char line[64];

    snprintf(line, sizeof line, "%s %s", c->name, c->words);
    fprintf(out, "  %-22s %s\n", line, c->summary);
}

static int print_help(FILE *out)
{
    fprintf(out, "usage: cloister COMMAND [OPTION…]\n\nCommands:\n");
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        print_command(out, &commands[i]);
    fprintf(out, "\nOptions:\n");
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        fprintf(out, "  %s\n", options[i].help);
    return out == stdout ? 0 : 2;
}

static int print_usage(const struct command *c)
{
    fprintf(stderr, "usage: cloister %s %s\n", c->name, c->words);
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        if (strchr(c->options, options[i].letter))
            fprintf(stderr, "  %s\n", options[i].help);
    return 2;
}

/* "key create …" before "key …"; *used counts the words of the name. */
static const struct command *find(int argc, char **argv, int *used)
{
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        char joined[64];
        bool two = strchr(commands[i].name, ' ') != NULL;
        if (argc < (two ? 3 : 2))
            continue;
        if (two)
            snprintf(joined, sizeof joined, "%s %s", argv[1], argv[2]);
        else
            snprintf(joined, sizeof joined, "%s", argv[1]);
        if (strcmp(joined, commands[i].name) == 0) {
            *used = two ? 2 : 1;
            return &commands[i];
        }
    }
    return NULL;
}

static bool take_option(struct cli *cli, const struct command *c, int letter)
{
    if (letter == '?' || !strchr(c->options, letter))
        return false;
    if (letter == 'c')
        cli->config_path = optarg;
    else if (letter == 'j')
        cli->json = true;
    else if (letter == 't')
        cli->state = true;
    else if (letter == 's' && cli->scope_count < CLI_LIST_MAX)
        cli->scopes[cli->scope_count++] = optarg;
    else if (letter == 'g' && cli->channel_count < CLI_LIST_MAX)
        cli->channels[cli->channel_count++] = optarg;
    else
        return false;
    return true;
}

/* `cloister --config FILE COMMAND` is the same as `cloister COMMAND --config FILE`. */
static void take_leading_config(struct cli *cli, int *argc, char ***argv)
{
    if (*argc > 2 && strcmp((*argv)[1], "--config") == 0) {
        cli->config_path = (*argv)[2];
        *argc -= 2;
        *argv += 2;
    } else if (*argc > 1 && strncmp((*argv)[1], "--config=", 9) == 0) {
        cli->config_path = (*argv)[1] + 9;
        *argc -= 1;
        *argv += 1;
    }
}

int cli_main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"config", required_argument, NULL, 'c'},  {"scope", required_argument, NULL, 's'},
        {"channel", required_argument, NULL, 'g'}, {"json", no_argument, NULL, 'j'},
        {"state", no_argument, NULL, 't'},         {NULL, 0, NULL, 0}};
    struct cli cli = {.config_path = DEFAULT_CONFIG};
    int used = 0, letter;

    take_leading_config(&cli, &argc, &argv);
    if (argc < 2)
        return print_help(stderr);
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return print_help(stdout);
    const struct command *c = find(argc, argv, &used);
    if (!c) {
        fprintf(stderr, "cloister: there is no such command; see cloister help\n");
        return 2;
    }
    argc -= used;
    argv += used;
    while ((letter = getopt_long(argc, argv, "", longs, NULL)) != -1)
        if (!take_option(&cli, c, letter))
            return print_usage(c);
    for (int i = optind; i < argc; i++) {
        if (cli.word_count == (int)ARRAY_LEN(cli.words))
            return print_usage(c);
        cli.words[cli.word_count++] = argv[i];
    }
    if (cli.word_count < c->least || cli.word_count > c->most)
        return print_usage(c);
    return c->run(&cli);
}
