#define REJOIN_SESSION_OPTIONS_INIT                                                                    \
    {sizeof(rejoin_session_options), 1, NULL, 0, 0, 0, 0, 0, NULL, -1, 0, 0, 0, 0}
#define REJOIN_SESSION_INFO_INIT {sizeof(rejoin_session_info), 1, 0, 0, 0, 0, 0, 0}
#define REJOIN_COMM_CONFIG_INIT                                                                        \
    {sizeof(rejoin_comm_config), 1, REJOIN_UNDEFINED, REJOIN_UNDEFINED, REJOIN_UNDEFINED, 0, NULL, NULL}
#define REJOIN_JOURNAL_OPTIONS_INIT {sizeof(rejoin_journal_options), 1, NULL, 0, 0, 0, 0, 0, 0}
#define REJOIN_RECORD_INIT {sizeof(rejoin_record), 1, 0, 0, NULL, 0, 0, 0, 0, 0, 0}
#define REJOIN_SNAPSHOT_INFO_INIT {sizeof(rejoin_snapshot_info), 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define REJOIN_RECOVERY_REPORT_INIT                                                                    \
    {sizeof(rejoin_recovery_report), 1, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
